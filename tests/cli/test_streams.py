"""Bytes in are bytes out."""

from hypothesis import given
from hypothesis import strategies as st

from kimi_proxy.cli.streams import decode, encode


@given(st.binary())
def test_any_bytes_come_out_as_they_went_in(raw: bytes):
    assert encode(decode(raw)) == raw


@given(st.text(st.characters(exclude_categories=[])))
def test_any_text_can_be_written(text: str):
    assert isinstance(encode(text), bytes)


def test_utf8_is_read_as_text():
    assert decode("déjà vu ⟦PRUNÉ⟧\r\n".encode()) == "déjà vu ⟦PRUNÉ⟧\r\n"
