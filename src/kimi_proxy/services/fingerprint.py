"""Which questions are the same: the key under which originals and recent answers are found again."""

from hashlib import sha256

from kimi_proxy.core import jsontext
from kimi_proxy.core.config import McpPruner
from kimi_proxy.core.prune import Question
from kimi_proxy.core.types import JsonValue
from kimi_proxy.features.pruning import engine

SLICE_CHARS = 256 * 1024  # encoding holds the interpreter lock: other threads get a turn after each slice


def fingerprint(question: Question, text: bytes, config: McpPruner) -> bytes:
    """32 bytes that depend on all that may change the answer, and not on the time that it may take."""
    options = question.options
    asked = jsontext.encode(
        [
            engine.VERSION,
            backend(config),
            question.goal,
            question.source_type,
            options.max_prune_ratio,
            options.min_keep_lines,
            options.annotate_lines,
            options.include_markers,
        ]
    )
    digest = sha256(len(asked).to_bytes(8, "big") + asked)
    digest.update(text)
    return digest.digest()


def backend(config: McpPruner) -> JsonValue:
    if config.backend == "heuristic":
        return "heuristic"
    return ["deepinfra", config.deepinfra_endpoint_url, config.deepinfra_max_docs]


def encoded(text: str) -> bytes:
    """`text` as it is stored: UTF-8, lone surrogates passed through."""
    slices = (text[at : at + SLICE_CHARS] for at in range(0, len(text), SLICE_CHARS))
    return b"".join(part.encode("utf-8", "surrogatepass") for part in slices)


def decoded(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogatepass")
