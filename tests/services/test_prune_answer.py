import pytest

from kimi_proxy.core.prune import Annotation, Cut, Pruned, no_op_result
from kimi_proxy.services.pruner import PruneAnswer, Reranking

ID = "prn_0123456789abcdef"
MARKER = f"⟦PRUNÉ: prune_id={ID} lignes 120-154 (35) raison=hors focus: parsing YAML⟧"


def pruned(original_lines: int = 420, *cuts: Cut) -> Pruned:
    cuts = cuts or (Cut(120, 154, "hors focus: parsing YAML"),)
    return Pruned("text", tuple(Annotation(c, MARKER) for c in cuts), original_lines, 12_000, 5_400)


def test_an_answer_reads_as_the_contract_says() -> None:
    answer = PruneAnswer(ID, pruned(), elapsed_ms=312)
    assert answer.json() == {
        "prune_id": ID,
        "pruned_text": "text",
        "annotations": [
            {
                "kind": "pruned_block",
                "original_start_line": 120,
                "original_end_line": 154,
                "pruned_line_count": 35,
                "reason": "hors focus: parsing YAML",
                "marker": MARKER,
            }
        ],
        "stats": {
            "original_lines": 420,
            "kept_lines": 385,
            "pruned_lines": 35,
            "pruned_ratio": 0.0833,
            "tokens_est_before": 12_000,
            "tokens_est_after": 5_400,
            "elapsed_ms": 312,
            "used_fallback": False,
            "backend": "heuristic",
            "tokens_saved_est": 6_600,
            "numbering": "lines",  # ours
        },
        "warnings": [],
    }


def test_the_reranker_adds_its_own_numbers() -> None:
    answer = PruneAnswer(ID, pruned(), Reranking(420, 64, 230, 200))
    assert list(answer.stats().items())[8:] == [
        ("backend", "deepinfra"),
        ("tokens_saved_est", 6_600),
        ("deepinfra_latency_ms", 230),
        ("deepinfra_docs_scored", 64),
        ("deepinfra_docs_total", 420),
        ("deepinfra_http_status", 200),
        ("deepinfra_cached", False),
        ("cost_estimated_usd", pytest.approx(0.000066)),
        ("numbering", "lines"),
    ]


def test_a_status_that_is_not_known_is_not_told() -> None:
    assert "deepinfra_http_status" not in PruneAnswer(ID, pruned(), Reranking()).stats()


def test_an_answer_from_the_cache_says_so() -> None:
    answer = PruneAnswer(ID, pruned().with_warnings("deepinfra_docs_truncated"), Reranking(420, 64, 230, 200))
    again = answer.from_cache()
    assert again.prune_id == ID
    assert again.pruned.warnings == ("deepinfra_docs_truncated", "cache_hit")
    assert again.stats()["deepinfra_latency_ms"] == 0
    assert again.stats()["deepinfra_cached"] is True
    assert PruneAnswer(ID, pruned()).from_cache().reranking is None


@pytest.mark.parametrize(
    ("of", "cuts", "ratio"),
    [(3, [Cut(1, 1, "")], 0.3333), (3, [Cut(1, 1, ""), Cut(3, 3, "")], 0.6667), (420, [Cut(1, 240, "")], 0.5714)],
)
def test_the_ratio_has_four_decimals(of: int, cuts: list[Cut], ratio: float) -> None:
    assert PruneAnswer(ID, pruned(of, *cuts)).stats()["pruned_ratio"] == ratio


def test_an_empty_text_has_a_ratio_of_nothing() -> None:
    assert PruneAnswer(ID, no_op_result("", 0, 0)).stats()["pruned_ratio"] == 0.0


def test_an_outcome_has_one_word() -> None:
    assert PruneAnswer(ID, pruned()).outcome == "pruned"
    assert PruneAnswer(ID, no_op_result("a", 1, 1)).outcome == "untouched"
    assert PruneAnswer(None, no_op_result("a", 1, 1, "timeout")).outcome == "fallback"
