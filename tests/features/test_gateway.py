"""What the gateway takes a call to be after, and what it says of one that it refuses."""

import pytest

from kimi_proxy.core.config.servers import McpServer
from kimi_proxy.core.errors import CallRefused
from kimi_proxy.core.json import JsonValue
from kimi_proxy.core.jsonrpc import RpcCall
from kimi_proxy.core.markers import MaskMarker
from kimi_proxy.features.gateway import CallGoal, check_call, goal_of, secrets_of


def call(name: str, arguments: JsonValue, **more: JsonValue) -> RpcCall:
    return RpcCall("tools/call", {"name": name, "arguments": arguments, **more}, 1, notification=False)


def test_the_goal_is_the_words_of_the_arguments_and_its_source_their_first_path():
    assert goal_of(call("grep", {"pattern": "needle", "path": "/a/b.log"})) == CallGoal("needle /a/b.log", "/a/b.log")


def test_a_goal_in_meta_wins():
    assert goal_of(call("grep", {"pattern": "x"}, _meta={"goal": "find it"})) == CallGoal("find it", "grep")


def test_texts_of_several_lines_are_no_goal_and_a_goal_is_short():
    assert goal_of(call("write", {"content": "a\nb", "note": "n" * 1000})) == CallGoal("n" * 280, "write")


def test_a_refused_marker_tells_the_model_which_tool_to_call():
    marker = str(MaskMarker("msk_0123456789abcdef", 9000, 2000, 2000))

    with pytest.raises(CallRefused) as refused:
        check_call(McpServer(url="http://127.0.0.1:1/rpc"), call("write", {"content": f"head{marker}tail"}))

    assert str(refused.value) == (
        "an argument contains a kimi-proxy marker instead of the text behind it: written to a file, that text would be "
        "lost. Call recover_text with id 'msk_0123456789abcdef' to read the original text, then send the real text."
    )


@pytest.mark.parametrize(
    ("arguments", "env", "passed", "secrets"),
    [
        (("-y", "some-server@1.2.3", "/home/ann/work"), {"NODE_ENV": "production"}, (), ()),
        (("--api-key", "k-123456"), {}, (), ("k-123456",)),
        (("--api-key=k-123456", "--port=8000"), {}, (), ("k-123456",)),
        (("--header", "Authorization: Bearer k-123456"), {}, (), ("k-123456",)),
        (("--header", "X-Api-Key: k-123456"), {}, (), ("k-123456",)),
        ((), {"SERVICE_KEY": "k-123456", "REGION": "eu-west-1"}, (), ("k-123456",)),
        ((), {"DSN": "postgres://a:k-123456@db/x"}, (), ("postgres://a:k-123456@db/x", "k-123456")),
        (("https://example.org/mcp?k=123456",), {}, (), ("https://example.org/mcp?k=123456", "k=123456")),
        ((), {}, ("k-123456",), ("k-123456",)),
    ],
)
def test_the_secrets_that_a_program_is_given_are_known(
    arguments: tuple[str, ...], env: dict[str, str], passed: tuple[str, ...], secrets: tuple[str, ...]
):
    assert secrets_of(arguments, env, passed) == secrets
