"""What a request is made of, before its provider has counted."""

import json

import pytest
from tests.support.conversations import Assistant, Call, Item, Result, User
from tests.support.conversations import request as conversation

from kimi_proxy.core import tokens
from kimi_proxy.core.chat import Request, Wire, parse
from kimi_proxy.core.json import JsonObject
from kimi_proxy.features.chat.context import (
    BLOB_TOKENS,
    IMAGE_TOKENS,
    MESSAGE_TOKENS,
    Composition,
    composition,
    distribution,
    is_same,
    scaled_to,
    tokens_of,
)
from kimi_proxy.features.chat.memory import weigh_text


def request(wire: Wire, **fields: object) -> Request:
    return parse(json.dumps({"model": "m", **fields}).encode(), wire)


def weighed(wire: Wire, **fields: object) -> int:
    return tokens_of(request(wire, **fields), len)


def composed(wire: Wire, **fields: object) -> Composition:
    return composition(request(wire, **fields), lambda text: weigh_text(text, len))


def test_texts_calls_results_and_tools_are_counted_once_each():
    call = {"id": "c", "function": {"name": "f", "arguments": "123456"}}
    messages = [
        {"role": "system", "content": "1234"},
        {"role": "assistant", "content": "12", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "12345678"},
    ]

    assert weighed(Wire.CHAT, messages=messages) == 4 + 2 + 6 + 8 + 3 * MESSAGE_TOKENS
    assert weighed(Wire.CHAT, messages=messages, tools=["x" * 10]) == 20 + 14 + 3 * MESSAGE_TOKENS


def test_a_system_prompt_apart_is_counted_too():
    assert weighed(Wire.MESSAGES, system="12345", messages=[]) == 5
    assert weighed(Wire.RESPONSES, instructions="12345", input="123") == 8 + MESSAGE_TOKENS


def test_images_have_a_flat_rate_whatever_their_bytes():
    image: JsonObject = {"type": "image", "source": {"data": "x" * 1_000_000}}
    document: JsonObject = {"type": "document", "source": {"data": "x" * 1_000_000}}

    assert weighed(Wire.MESSAGES, messages=[{"role": "user", "content": [image]}]) == IMAGE_TOKENS + MESSAGE_TOKENS
    assert weighed(Wire.MESSAGES, messages=[{"role": "user", "content": [document]}]) == BLOB_TOKENS + MESSAGE_TOKENS


def test_the_four_ingredients_add_up_to_the_whole():
    made = composed(
        Wire.MESSAGES,
        system="Be brief. @memory[style]",
        tools=["x" * 10],
        messages=[
            {"role": "user", "content": "12345"},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "f", "input": {"a": 1}}]},
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "c", "content": "12 <mcp-result>r</mcp-result>"},
                    {"type": "text", "text": "123"},
                ],
            },
        ],
    )

    memory = len("@memory[style]") + len("<mcp-result>r</mcp-result>")
    assert (made.system, made.memory) == (len("Be brief. "), memory)
    assert made.tools == len('["xxxxxxxxxx"]') + len('{"a": 1}') + len("12 ")
    assert made.chat == 5 + 3 + 3 * MESSAGE_TOKENS
    assert made.total == made.system + made.memory + made.tools + made.chat
    assert [one.kind for one in made.messages] == ["chat", "tools", "chat"]


def test_each_message_knows_what_the_model_reads_before_it():
    made = composed(Wire.CHAT, tools=[], messages=[{"role": role, "content": "123456"} for role in ("system", "user")])

    assert [one.before for one in made.messages] == [2, 2 + 6 + MESSAGE_TOKENS]
    assert made.messages[-1].before + made.messages[-1].tokens == made.total


def test_a_picture_that_a_tool_answered_with_belongs_to_the_tools():
    answer = {"type": "tool_result", "tool_use_id": "c", "content": [{"type": "image", "source": {}}]}

    assert composed(Wire.MESSAGES, messages=[{"role": "user", "content": [answer]}]).tools == IMAGE_TOKENS


FRENCH = "<mcp-memory>Nous préférons les tabulations.</mcp-memory>"
ENGLISH = "[MEMORY]The port is 8000.[/MEMORY]"
SEVEN = (
    FRENCH,
    ENGLISH,
    "@memory[style]",
    "<mcp-result>3 lignes</mcp-result>",
    '<mcp-tool name="search">café</mcp-tool>',
    "@recall(l'ordre des étapes)",
    "@remember(f(x) is slow)",
)


@pytest.mark.parametrize("wire", Wire)
@pytest.mark.parametrize("memory", SEVEN)
def test_memory_is_a_plain_recount_of_its_segments_wherever_it_stands(wire: Wire, memory: str):
    code = f"Voici :\n```python\n# {memory}\n```\net {FRENCH}"
    items: list[Item] = [
        User(f"{ENGLISH} {memory}, please"),
        Assistant(code, (Call("c1", "read_file", {"path": "a.py"}),)),
        Result("c1", f"1\t{memory}\n2\tnothing\n{ENGLISH}"),
        User("no memory here"),
    ]
    made = composition(conversation(wire, items), lambda text: weigh_text(text, tokens.count))

    texts = (ENGLISH, memory, memory, FRENCH, memory, ENGLISH)
    assert made.memory == sum(tokens.count(text) for text in texts)
    assert made.memory == sum(found.tokens for found in made.found)
    assert sum(found.count for found in made.found) == len(texts)
    assert made.total == tokens_of(conversation(wire, items), tokens.count)


@pytest.mark.parametrize("wire", Wire)
def test_a_block_that_is_split_over_messages_is_no_memory(wire: Wire):
    items: list[Item] = [User("<mcp-memory>opened here"), Assistant("fine"), User("and closed</mcp-memory> here")]

    assert composition(conversation(wire, items), lambda text: weigh_text(text, len)).memory == 0


def test_a_block_that_is_split_over_the_parts_of_a_message_is_no_memory():
    parts = [{"type": "text", "text": text} for text in ("<mcp-memory>", "a", "</mcp-memory>", FRENCH)]

    assert composed(Wire.MESSAGES, messages=[{"role": "user", "content": parts}]).memory == len(FRENCH)


def test_requests_that_say_the_same_weigh_the_same():
    one, other = ({"messages": [{"role": "user", "content": text}]} for text in ("1", "2"))

    assert is_same(request(Wire.CHAT, **one), request(Wire.CHAT, **one, temperature=1))
    assert not is_same(request(Wire.CHAT, **one), request(Wire.CHAT, **other))


def test_memory_stands_after_the_words_that_precede_it():
    memory = "<mcp-memory>" + "m" * 988 + "</mcp-memory>"
    slices = distribution(composed(Wire.CHAT, messages=[{"role": "system", "content": "w" * 3000 + memory}]))

    kinds = ["memory" if one["memory"] > one["system"] else "system" for one in slices]
    assert kinds == ["system"] * 15 + ["memory"] * 5
    behind = distribution(composed(Wire.CHAT, messages=[{"role": "system", "content": memory + "w" * 3000}]))
    assert ["memory" if one["memory"] > one["system"] else "system" for one in behind] == [*reversed(kinds)]


def test_a_composition_in_the_providers_tokens_keeps_its_proportions():
    made = composed(
        Wire.CHAT, messages=[{"role": "system", "content": "w" * 3000}, {"role": "user", "content": "u" * 1000}]
    )
    scaled = scaled_to(made, 2 * made.total)

    assert scaled.total == 2 * made.total
    assert [one.before for one in scaled.messages] == [2 * one.before for one in made.messages]
    assert scaled_to(made, made.total) is made
