"""`POST /prune`, as swe-pruner's clients know it."""

from collections.abc import Iterator

import pytest
from tests.support.api import wire
from tests.support.api.pruner_world import pruner

from kimi_proxy.core.json import JsonObject, JsonValue

CODE = "\n".join(
    f'def function_{n}(value):\n    """Does thing number {n}."""\n'
    + "".join(f"    value = value * {n} + step_{step}(value, limit={step})\n" for step in range(12))
    + "    return value\n"
    for n in range(100)
).replace("thing number 57", "the parsing of the retry budget")
QUESTION = "How is the retry budget parsed?"
FIELDS = {
    *("score", "pruned_code", "token_scores", "kept_frags", "origin_token_cnt", "left_token_cnt"),
    *("model_input_token_cnt", "error_msg", "prune_id"),
}


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with pruner(tmp_path_factory.mktemp("home")) as port:
        yield port


def post(port: int, body: JsonValue) -> wire.Heard:
    return wire.post(port, "/prune", body)


def prune(port: int, **asked: JsonValue) -> JsonObject:
    heard = post(port, {"code": CODE, "query": QUESTION, **asked})
    assert heard.status == 200
    assert isinstance(heard.json, dict)
    return dict(heard.json)


def kept(answer: JsonObject) -> list[int]:
    frags = answer["kept_frags"]
    assert isinstance(frags, list)
    return [int(number) for number in frags]


def test_the_answer_has_the_fields_of_the_contract(port: int):
    answer = prune(port)

    assert set(answer) == FIELDS
    assert answer["error_msg"] is None
    assert isinstance(answer["score"], float)
    assert isinstance(answer["token_scores"], list)
    assert len(answer["token_scores"]) == len(CODE.split("\n"))


def test_kept_lines_are_exact_and_gaps_are_counted(port: int):
    answer = prune(port)
    lines, text = CODE.split("\n"), answer["pruned_code"]
    assert isinstance(text, str)
    stays = set(kept(answer))

    expected: list[str] = []
    gap = 0
    for number, line in enumerate([*lines, None], 1):
        if line is None or number in stays:
            expected += [f"(filtered {gap} lines)"] if gap else []
            expected += [] if line is None else [line]
            gap = 0
        else:
            gap += 1

    assert text == "\n".join(expected)
    assert "the parsing of the retry budget" in text
    assert "⟦PRUNÉ" not in text
    assert (
        int(str(answer["left_token_cnt"]))
        < int(str(answer["origin_token_cnt"]))
        < int(str(answer["model_input_token_cnt"]))
    )


def test_what_was_filtered_can_be_recovered(port: int):
    asked: JsonObject = {
        "prune_id": prune(port)["prune_id"],
        "ranges": [{"start_line": 1, "end_line": 10_000}],
        "include_line_numbers": False,
    }
    body: JsonObject = {"jsonrpc": "2.0", "id": 1, "method": "recover_text", "params": asked}

    match wire.post(port, "/rpc", body).json:
        case {"result": {"raw_text": text}}:
            assert text == CODE
        case other:
            raise AssertionError(other)


@pytest.mark.parametrize(("threshold", "share"), [(0.0, 0.0), (0.2, 0.3), (0.5, 0.75), (1.0, 0.95)])
def test_the_threshold_limits_how_much_may_go(port: int, threshold: float, share: float):
    lines = len(CODE.split("\n"))
    gone = lines - len(kept(prune(port, threshold=threshold)))

    assert gone <= share * lines
    assert (gone > 0) == (threshold > 0)


def test_the_first_line_can_be_kept_in_any_case(port: int):
    assert 1 in kept(prune(port, threshold=1.0, always_keep_first_frags=True))


def test_fields_of_other_servers_are_passed_over(port: int):
    answer = prune(
        port, chunk_overlap_tokens=50, aggregate_method="line", language="python", always_keep_last_frags=True
    )

    assert answer["error_msg"] is None


@pytest.mark.parametrize(
    ("body", "named"),
    [
        ({"query": "q"}, "code"),
        ({"code": "c"}, "query"),
        ({"code": 5, "query": "q"}, "code"),
        ({"code": "c", "query": "q", "threshold": 2}, "threshold"),
        ({"code": "c", "query": "q", "threshold": "high"}, "threshold"),
        ([], "body"),
    ],
    ids=repr,
)
def test_a_wrong_request_is_refused_by_the_name_of_its_field(port: int, body: JsonValue, named: str):
    heard = post(port, body)

    assert heard.status == 400
    assert named in heard.body.decode()


def test_a_body_that_is_not_json_is_refused(port: int):
    assert wire.ask(port, "POST", "/prune", b"{").status == 400


@pytest.mark.parametrize(
    "code", ["", "one line", "a\n\n\n", "\u2028\r\n" * 20, "\ud800" * 50], ids=lambda code: ascii(code)[:20]
)
def test_nasty_texts_come_back_whole_or_shorter(port: int, code: str):
    answer = prune(port, code=code)

    assert set(answer) == FIELDS
    assert len(str(answer["pruned_code"])) <= len(code)
