"""An MCP server on standard input and output that does what the name of the called tool says.

Run as a script, with the standard library alone:

    python -I -S stdio_server.py [silent | crash | refuse | stateless] [LOG]
"""

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

MODE = sys.argv[1] if len(sys.argv) > 1 else ""
LOG = sys.argv[2] if len(sys.argv) > 2 else os.devnull

HELLO = {
    "protocolVersion": "2025-11-25",
    "capabilities": {"tools": {}},
    "serverInfo": {"name": "script", "version": "1"},
}
lock = threading.Lock()


def write(line: str) -> None:
    with lock:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


def say(value: object) -> None:
    write(json.dumps(value))


def note(text: str) -> None:
    with Path(LOG).open("a") as log:
        log.write(text + "\n")


def answer(message: dict, result: object) -> None:
    say({"jsonrpc": "2.0", "id": message["id"], "result": result})


def fail(message: dict, code: int, text: str) -> None:
    say({"jsonrpc": "2.0", "id": message["id"], "error": {"code": code, "message": text}})


def call(message: dict) -> None:
    name, arguments = message["params"]["name"], message["params"].get("arguments", {})
    match name:
        case "echo":
            answer(message, {"content": [{"type": "text", "text": json.dumps(arguments)}]})
        case "meta":
            answer(message, {"meta": message["params"].get("_meta")})
        case "slow":
            if "begun" in arguments:
                Path(arguments["begun"]).touch()
            time.sleep(arguments["seconds"])
            answer(message, arguments)
        case "text":
            answer(message, {"content": [{"type": "text", "text": arguments["piece"] * arguments["times"]}]})
        case "deep":
            depth = arguments["depth"]
            write(f'{{"jsonrpc":"2.0","id":{message["id"]},"result":{"[" * depth}{"]" * depth}}}')
        case "wrong_id":
            say({"jsonrpc": "2.0", "id": 999_999, "result": "not yours"})
            answer(message, "yours")
        case "noise":
            write("Server is happy to be of service!")
            write("")
            write("[1, 2]")
            say({"jsonrpc": "2.0", "method": "notifications/message", "params": {"data": "log"}})
            say([{"jsonrpc": "2.0", "id": message["id"], "result": "found"}])
        case "asks":
            waiting.append(message)
            say({"jsonrpc": "2.0", "id": "p", "method": "ping"})
            say({"jsonrpc": "2.0", "id": "r", "method": "roots/list"})
        case "progress":
            token = message["params"].get("_meta", {}).get("progressToken")
            for step in range(arguments.get("steps", 3)):
                said = {"progressToken": token, "progress": step, "message": arguments.get("who", "")}
                say({"jsonrpc": "2.0", "method": "notifications/progress", "params": said})
                time.sleep(0.02)
            say({"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": "x", "progress": 9}})
            answer(message, {"content": [{"type": "text", "text": str(token)}]})
        case "child":
            child = subprocess.Popen(["sleep", "600"])
            answer(message, {"pid": os.getpid(), "child": child.pid})
        case "adrift":
            # Its parent is gone, its session and its environment are its own, and it does not listen to SIGTERM.
            script = "env -i setsid sh -c 'trap \"\" TERM; echo $$; exec sleep 600' &"
            shell = subprocess.Popen(["sh", "-c", script], stdout=subprocess.PIPE)
            adrift = int(shell.stdout.readline())
            shell.wait()
            answer(message, {"pid": os.getpid(), "child": adrift})
        case "environment":
            answer(message, dict(os.environ))
        case "where":
            answer(message, str(Path.cwd()))
        case "endless":
            while True:
                sys.stdout.write("x" * 1_000_000)
        case "last_words":
            answer(message, "x" * 1_000_000)
            os._exit(0)
        case "unended":
            sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": "no newline"}))
            sys.stdout.flush()
            os._exit(0)
        case "other_id":
            kinds = {"text": str, "fraction": float}
            say({"jsonrpc": "2.0", "id": kinds[arguments["kind"]](message["id"]), "result": "yours"})
        case "die":
            sys.stderr.write("out of memory, or so\n")
            sys.stderr.flush()
            os._exit(3)
        case "pid":
            answer(message, os.getpid())
        case "nothing":
            pass


waiting: list[dict] = []
replies: list[dict] = []


def listen(message: dict) -> None:
    note(message.get("method", "response"))
    match message.get("method"):
        case None:
            replies.append(message)
            if len(replies) == 2:
                answer(waiting.pop(), replies)
        case "initialize":
            match MODE:
                case "silent":
                    pass
                case "crash":
                    sys.stderr.write("cannot find my configuration\n")
                    sys.stderr.flush()
                    os._exit(7)
                case "refuse":
                    fail(message, -32603, "not today")
                case "stateless":
                    fail(message, -32601, "Method not found")
                case _:
                    answer(message, HELLO)
        case "server/discover" if MODE == "stateless":
            answer(
                message, {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}, "resultType": "complete"}
            )
        case "tools/list":
            answer(message, {"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]})
        case "ping":
            answer(message, {})
        case "tools/call":
            threading.Thread(target=call, args=(message,), daemon=True).start()
        case _ if "id" in message:
            fail(message, -32601, "Method not found")


note("start")
for line in sys.stdin:
    listen(json.loads(line))
note("end")
