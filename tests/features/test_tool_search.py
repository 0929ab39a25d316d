"""Finding a tool among those of many servers, and thinner schemas."""

from hypothesis import given
from hypothesis import strategies as st

from kimi_proxy.core.json import JsonObject
from kimi_proxy.features.tool_search import rank_tools, thin_schema
from kimi_proxy.features.tool_words import ListedTool


def tool(server: str, name: str, about: str = "", **more: object) -> ListedTool:
    return ListedTool(server, {"name": name, "description": about, **more})  # type: ignore[dict-item]


TOOLS = [
    tool("files", "read_file", "Read a file from disk"),
    tool("files", "delete_file", "Deletes a file or directory"),
    tool("files", "list_directory", "Lists the contents of a directory"),
    tool("git", "git_commit", "Records changes to the repository"),
    tool("web", "take_screenshot", "Take a screenshot of the page"),
    tool("notes", "create_comment", "Create a comment on a page"),
]


def names(request: str, limit: int = 8) -> list[str]:
    return [found.name for found in rank_tools(TOOLS, request, limit)]


def test_a_tool_is_found_by_its_own_words():
    assert names("commit my work")[0] == "git__git_commit"


def test_a_tool_is_found_by_words_that_mean_the_same():
    assert names("what is in this folder")[0] == "files__list_directory"
    assert names("take a picture of the site")[0] == "web__take_screenshot"
    assert "notes__create_comment" in names("leave a remark")


def test_a_request_that_shares_no_word_finds_nothing():
    assert names("quaternion") == []


def test_no_more_tools_are_returned_than_asked_for():
    assert len(names("file directory page", 2)) == 2


@given(st.text(max_size=200))
def test_every_request_is_answered_the_same_twice(request: str):
    assert names(request) == names(request)


def test_a_schema_loses_titles_and_examples_but_no_property_of_such_a_name():
    schema: JsonObject = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Args",
        "type": "object",
        "properties": {
            "title": {"type": "string", "title": "Title", "description": "Of the page", "examples": ["x"]},
            "examples": {"type": "array", "items": {"type": "string", "deprecated": True}},
        },
        "required": ["title"],
        "$defs": {"title": {"enum": ["title", "examples"], "default": {"title": "kept"}}},
    }
    assert thin_schema(schema) == {
        "type": "object",
        "properties": {
            "title": {"type": "string", "description": "Of the page"},
            "examples": {"type": "array", "items": {"type": "string"}},
        },
        "required": ["title"],
        "$defs": {"title": {"enum": ["title", "examples"], "default": {"title": "kept"}}},
    }


def test_a_tool_is_read_only_only_if_its_server_says_so():
    assert tool("s", "a", annotations={"readOnlyHint": True}).is_read_only
    assert not tool("s", "a").is_read_only
    assert not tool("s", "a", annotations={"readOnlyHint": "yes"}).is_read_only
