"""What the tests of app share with others."""

from kimi_proxy.core.json import JsonObject

OPTIONS: JsonObject = {
    "max_prune_ratio": 0.6,
    "min_keep_lines": 5,
    "timeout_ms": 60_000,
    "annotate_lines": False,
    "include_markers": True,
}


def lines(prune_id: str, *ranges: tuple[int, int], numbers: bool = False) -> JsonObject:
    return {
        "prune_id": prune_id,
        "ranges": [{"start_line": start, "end_line": end} for start, end in ranges],
        "include_line_numbers": numbers,
    }
