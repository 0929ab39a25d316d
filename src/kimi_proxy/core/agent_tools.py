"""The agent tools read, bash and grep, as the settings know them."""

from urllib.parse import urlsplit

from pydantic import Field, field_validator

from kimi_proxy.core.section import Section

MAX_BASH_TIMEOUT_MS = 600_000


class Tools(Section):
    """What the agent tools may see and run, and who prunes what they found."""

    enabled: bool = True
    cwd: str = ""
    roots: tuple[str, ...] = ()
    denied_names: tuple[str, ...] = (".env", ".gnupg", ".ssh")
    bash_over_http: bool = False
    bash_timeout_ms: int = Field(default=120_000, ge=1, le=MAX_BASH_TIMEOUT_MS)
    bash_env: tuple[str, ...] = ()
    max_processes: int = Field(default=1000, ge=1)
    max_output_bytes: int = Field(default=1024**3, ge=1024**2)
    max_prune_ratio: float = Field(default=0.75, ge=0, le=1)
    max_prune_input_bytes: int = Field(default=2_000_000, ge=1)
    pruner_endpoint: str = ""
    pruner_timeout_ms: int = Field(default=5000, ge=1, le=600_000)

    @field_validator("pruner_endpoint")
    @classmethod
    def _an_address(cls, url: str) -> str:
        if url and (urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).hostname):
            raise ValueError("must begin with http:// or https:// and name a host")
        return url


def switch(text: str) -> bool:
    """A variable that says yes or no."""
    word = text.strip().lower()
    if word in ("true", "1", "yes", "on"):
        return True
    if word in ("false", "0", "no", "off"):
        return False
    raise ValueError("neither true nor false")
