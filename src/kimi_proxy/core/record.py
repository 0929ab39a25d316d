"""Recordings of conversations, as the settings know them."""

from pydantic import Field

from kimi_proxy.core.section import Section


class Record(Section):
    """Off unless somebody says so: a recording holds every word of a conversation."""

    enabled: bool = False
    dir: str = ""
    max_bytes: int = Field(default=64 * 1024**2, ge=1024)
