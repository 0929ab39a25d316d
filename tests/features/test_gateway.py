"""What the gateway takes a call to be after."""

from kimi_proxy.core.json import JsonValue
from kimi_proxy.core.jsonrpc import RpcCall
from kimi_proxy.features.gateway import CallGoal, goal_of


def call(name: str, arguments: JsonValue, **more: JsonValue) -> RpcCall:
    return RpcCall("tools/call", {"name": name, "arguments": arguments, **more}, 1, notification=False)


def test_the_goal_is_the_words_of_the_arguments_and_its_source_their_first_path():
    assert goal_of(call("grep", {"pattern": "needle", "path": "/a/b.log"})) == CallGoal("needle /a/b.log", "/a/b.log")


def test_a_goal_in_meta_wins():
    assert goal_of(call("grep", {"pattern": "x"}, _meta={"goal": "find it"})) == CallGoal("find it", "grep")


def test_texts_of_several_lines_are_no_goal_and_a_goal_is_short():
    assert goal_of(call("write", {"content": "a\nb", "note": "n" * 1000})) == CallGoal("n" * 280, "write")
