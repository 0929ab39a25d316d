"""Which conversations are told what is known of the project."""

import pytest
from tests.support.conversations import Assistant, User, request

from kimi_proxy.core.chat import Wire
from kimi_proxy.core.json import JsonValue
from kimi_proxy.features.chat.memory import is_new_conversation


@pytest.mark.parametrize("wire", list(Wire))
def test_a_conversation_begins_with_what_a_user_says(wire: Wire):
    assert is_new_conversation(request(wire, [User("go")]))
    assert not is_new_conversation(request(wire, [User("go"), Assistant("Done."), User("again")]))


@pytest.mark.parametrize(
    ("kept", "is_begun"),
    [
        ({"previous_response_id": "resp_1"}, True),
        ({"conversation": {"id": "conv_1"}}, True),
        ({"previous_response_id": None, "conversation": None}, False),
    ],
)
def test_what_the_provider_keeps_has_begun_before(kept: dict[str, JsonValue], is_begun: bool):
    assert is_new_conversation(request(Wire.RESPONSES, [User("and?")], **kept)) is not is_begun
