"""What a request weighs before its provider has counted."""

import json

from kimi_proxy.core.chat import Wire, parse
from kimi_proxy.core.types import JsonObject
from kimi_proxy.features.weight import BLOB_TOKENS, IMAGE_TOKENS, MESSAGE_TOKENS, tokens_of


def weighed(wire: Wire, **fields: object) -> int:
    return tokens_of(parse(json.dumps({"model": "m", **fields}).encode(), wire), len)


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
