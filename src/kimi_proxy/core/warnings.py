"""What a pruned text is warned of: why it is whole, or what about it is not as usual."""

from typing import Literal

OfReranker = Literal["deepinfra_http_error", "deepinfra_config_error", "deepinfra_parse_error"]
Warned = (
    Literal[
        "constraints_unmet",
        "scorer_refused",
        "cache_hit",
        "recovery_unavailable",
        "timeout",
        "input_too_large",
        "internal_error",
        "deepinfra_error",
        "deepinfra_docs_truncated",
    ]
    | OfReranker
)
