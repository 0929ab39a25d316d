"""Envelopes as strangers fold them."""

import pytest

from kimi_proxy.core import json, jsonrpc
from kimi_proxy.core.errors import InvalidRequest


@pytest.mark.parametrize("number", ["1e400", "-1e400"])
def test_an_id_beyond_all_numbers_is_refused_since_no_answer_could_repeat_it(number: str):
    message = json.decode(f'{{"jsonrpc":"2.0","method":"ping","id":{number}}}'.encode())

    with pytest.raises(InvalidRequest, match="id must be a string or a number"):
        jsonrpc.read(message)
    assert jsonrpc.id_of(message) is None


@pytest.mark.parametrize("number", ["0", "-1", "1.5", "123456789012345678901234567890"])
def test_any_other_number_is_an_id(number: str):
    message = json.decode(f'{{"jsonrpc":"2.0","method":"ping","id":{number}}}'.encode())
    call = jsonrpc.read(message)

    assert call is not None
    assert json.encode(jsonrpc.success(call.id, {})) == f'{{"jsonrpc":"2.0","id":{number},"result":{{}}}}'.encode()
