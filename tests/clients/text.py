"""A text worth pruning, for whichever client asks."""

LOG = "\n".join(
    f"10:{i // 60:02}:{i % 60:02} INFO request {i} served in {i * 37 % 900} ms" if i != 150 else "ERROR disk é is full"
    for i in range(300)
)
QUESTION = {
    "text": LOG,
    "goal_hint": "which disk is full",
    "source_type": "logs",
    "options": {
        "max_prune_ratio": 0.6,
        "min_keep_lines": 5,
        "timeout_ms": 60_000,
        "annotate_lines": False,
        "include_markers": True,
    },
}
EVERYTHING = [{"start_line": 1, "end_line": 300}]
