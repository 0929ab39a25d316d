"""Two hundred bodies that a careless proxy would change in passing."""

from itertools import product

_NUMBERS = ("1e400", "-0", "-0.0", "1E+2", "0.10", "1.0", "12345678901234567890123", "1e-7", "100000000000000000000.5")
_STRINGS = (
    r'"caf\u00e9"',
    '"café"',
    r'"\ud83d\ude00"',
    '"😀"',
    r'"\ud800 alone"',
    r'"\/slashes\/"',
    r'"\u0000\b\f\t\u001f"',
    r'"\"quoted\" \\ud800"',
    '"\u2028\u2029\x7f"',
    '"日本語"',
    '""',
)
_LAYOUTS = (
    '{{"model":"m","messages":[{{"role":"user","content":{s}}}],"temperature":{n}}}',
    '{{ "temperature" : {n} ,\n\t"messages" : [ {{ "content" : {s} , "role" : "user" }} ] , "model" : "m" }}\r\n',
    ' {{"z":{{"b":{n},"a":[]}},"model":"x","messages":[],"messages":[{{"role":"user","content":{s}}}],"model":"m"}}',
    '{{"messages":[{{"role":"tool","tool_call_id":"c","content":[{{"type":"text","text":{s},"x":{n}}}]}}],"model":"m"}}',
)
_REST = (
    b'{"model":"m"}',
    b'{"model":"m","messages":null,"stream":null,"stream_options":null,"tools":null}',
    b'{"model":"m","messages":"not a list","tools":{"not":"a list"}}',
    b'{"model":"m","messages":[null,1,"x",[],{},{"role":5,"content":{}}]}',
    b'{"model":"m","messages":[],"stream":false,"stream_options":{"include_usage":false}}',
    b'{"model":"m","stream":true,"stream_options":{"include_usage":true},"messages":[]}',
    b'{"model":"m","stream":true,"stream_options":{"include_usage":false},"messages":[]}',
    b'{"\\u006dodel":"m","messages":[]}',
    b'{"model":"m","a":' + b"[" * 100 + b"]" * 100 + b"}",
    b'{"model":"m","":{"":{"":null}},"\\u0000":1}',
    b'{"model":"m","messages":[],"padding":"' + b"x" * 300_000 + b'"}',
    b'{"model":"m","messages":[' + b",".join([b'{"role":"user","content":"y"}'] * 500) + b"]}",
)

BODIES: tuple[bytes, ...] = (
    *(layout.format(s=s, n=n).encode() for layout, s, n in product(_LAYOUTS, _STRINGS, _NUMBERS)),
    *_REST,
)
