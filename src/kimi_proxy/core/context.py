"""What the settings say about memory and about instructions that are buried."""

from pydantic import Field

from kimi_proxy.core.section import Section


class Memory(Section):
    """What is worth knowing about a project, told at the beginning of every new conversation."""

    inject: bool = False
    max_bytes: int = Field(default=65_536, ge=1, le=1024**2)


class Reinjection(Section):
    """Instructions that lie too far from the end of the prompt are repeated there."""

    enabled: bool = False
    threshold: float = Field(default=0.5, gt=0, le=1)
    max_tokens: int = Field(default=4000, ge=1)
