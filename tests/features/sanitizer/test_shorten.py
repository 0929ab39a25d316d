"""One output, shortened by the way that suits it."""

import json
import random

import pytest
from tests.support import outputs

from kimi_proxy.core.markers import is_id, read, read_mask
from kimi_proxy.core.prune import Origin
from kimi_proxy.features.sanitizer.shorten import HUGE_TOKENS, ShortenedText, Task, shorten

MINIFIED = "function a(b){return b+1};" * 1000


def shortened(text: str, origin: Origin = Origin("bash"), **more: object) -> ShortenedText:  # noqa: B008 - it is frozen
    settings = {"is_unread": True, "threshold_tokens": 1000, "preview_chars": 200, "seed": b"seed", **more}
    return shorten(Task(text, "why does it fail?", origin, **settings))  # type: ignore[arg-type]


def whole(done: ShortenedText) -> str:
    """Why nothing was done, after checking that nothing was."""
    assert done.hidden == ()
    assert done.tokens_before == done.tokens_after
    return done.why


def test_what_is_below_the_threshold_stays():
    assert whole(shortened("word " * 900)) == "below_threshold"


def test_the_same_task_is_done_alike_and_another_seed_gives_other_ids():
    log = outputs.pytest_log(600).text

    first, again, other = shortened(log), shortened(log), shortened(log, seed=b"other")

    assert first == again
    assert first.hidden[0].id != other.hidden[0].id
    assert all(is_id(hidden.id) for hidden in first.hidden + other.hidden)


def test_every_line_is_as_it_was_or_named_by_a_marker():
    log = outputs.pytest_log(600).text
    done = shortened(log)

    lines, rebuilt = log.split("\n"), list[str]()
    for line in done.shown.split("\n"):
        marker = read(line)
        if marker:
            assert marker.prune_id == done.hidden[0].id
        rebuilt += lines[marker.start - 1 : marker.end] if marker else [line]
    assert rebuilt == lines
    assert done.hidden[0].text == log


def test_a_log_of_nothing_but_failures_stays_whole():
    lines = [f"src/module_{i}/part.py:{i}: error: name_{i * 7919 % 1000} is not defined" for i in range(120)]

    assert whole(shortened("\n".join(lines))) == "nothing_to_cut"


@pytest.mark.parametrize("failures", [1, 5, 40])
def test_no_failure_is_ever_cut(failures: int):
    rng = random.Random(failures)
    lines = [f"tests/test_{i % 17}.py::test_case_{i} PASSED" for i in range(1500)]
    for i in range(failures):
        lines[rng.randrange(1500)] = f"ERROR worker {i}: cannot reach database replica-{i} at 10.0.0.{i}"
    kept = set(shortened("\n".join(lines)).shown.split("\n"))

    assert [line for line in lines if line.startswith("ERROR") and line not in kept] == []


def test_how_a_command_ended_stays():
    text = f"Exit code: 0\nWall time: 3 s\nOutput:\n{outputs.build_log(900).text.replace('error', 'note')}[done]"
    shown = shortened(text).shown

    assert shown.startswith("Exit code: 0\nWall time: 3 s\nOutput:\n") and shown.endswith("[done]")


def test_of_a_text_without_lines_the_statements_stay_that_answer():
    text = MINIFIED + "function retry(n){throw Error('it fails after '+n)};" + MINIFIED
    done = shortened(text)
    marker = read_mask(done.shown)

    assert marker is not None
    assert (marker.mask_id, marker.original_chars) == (done.hidden[0].id, len(text))
    assert "it fails after" in done.shown
    assert done.shown.startswith(MINIFIED[:50])
    assert done.tokens_after < 0.25 * done.tokens_before


def test_of_a_text_in_which_all_is_alike_both_ends_stay():
    done = shortened("lorem ipsum dolor sit amet " * 2000)

    assert read_mask(done.shown) is not None
    assert done.shown.startswith("lorem ipsum") and done.shown.endswith("sit amet ")


def test_half_of_a_longer_file_stays_at_least_until_it_was_read():
    code = "\n".join(outputs.source_file().text.split("\n")[:700])
    kept = {line for line in shortened(code, Origin("read", path="a.py")).shown.split("\n") if "⟦PRUNÉ" not in line}

    assert len([line for line in code.split("\n") if line in kept]) >= 350


@pytest.mark.parametrize("text", [outputs.pytest_log(600).text, outputs.records(100).text, MINIFIED])
def test_a_model_without_a_tool_is_told_where_to_find_the_rest(text: str):
    done = shortened(text, hint="[GET /api/mask/{id}]")

    assert done.shown.count(f"[GET /api/mask/{done.hidden[0].id}]") == 1


@pytest.mark.parametrize("indent", [None, 2])
def test_records_can_be_put_back_where_their_markers_stand(indent: int | None):
    text = outputs.records(200, indent=indent).text
    done = shortened(text)
    rebuilt, lines = [], text.split("\n")
    for item in json.loads(done.shown):
        if isinstance(item, dict):
            rebuilt.append(item)
            continue
        by_line, by_char = read(item), read_mask(item)
        hidden = (
            "\n".join(lines[by_line.start - 1 : by_line.end])
            if by_line
            else text[by_char.head_chars : len(text) - by_char.tail_chars]  # type: ignore[union-attr]
        )
        rebuilt += json.loads(f"[{hidden.strip().removesuffix(',')}]")

    assert rebuilt == json.loads(text)
    assert done.hidden[0].text == text


def test_a_long_object_of_records_keeps_its_shape():
    packages = {f"node_modules/pkg-{i}": {"version": f"{i}.0.0", "resolved": f"https://x/{i}"} for i in range(400)}
    packages["node_modules/pkg-77"]["deprecated"] = "do not use"
    text = json.dumps({"name": "shop", "packages": packages}, indent=2)
    done = shortened(text)
    shown = json.loads(done.shown)

    assert shown["name"] == "shop"
    assert shown["packages"]["node_modules/pkg-77"] == packages["node_modules/pkg-77"]
    assert len(shown["packages"]) < 250


def test_a_long_text_inside_json_is_shortened_inside():
    printed = outputs.pytest_log(600)
    text = json.dumps({"output": printed.text, "metadata": {"exit_code": 1}})
    done = shortened(text)
    shown = json.loads(done.shown)

    assert shown["metadata"] == {"exit_code": 1}
    assert [needle for needle in printed.needles if needle not in shown["output"]] == []
    assert [hidden.text for hidden in done.hidden] == [text]


@pytest.mark.parametrize(
    "text",
    [
        json.dumps({"key": "v" * 3, "list": list(range(4))}) + " " * 5000,
        json.dumps(["\ud800" * 3000]),
        json.dumps({f"k{i}": i for i in range(800)}),
        "[" * 400 + "]" * 400,
        json.dumps([[]] * 4000),
    ],
)
def test_json_with_nothing_to_leave_out_is_json_still(text: str):
    json.loads(shortened(text).shown)


RECORDS = json.dumps([{"id": n, "name": f"item {n}", "value": n * 1.5} for n in range(600)])


@pytest.mark.parametrize("odd", ["1e400", "9" * 5000, "-0", "1" + "0" * 30])
def test_a_number_that_no_machine_holds_is_no_reason_to_fail(odd: str):
    done = shortened(RECORDS.replace('"value": 300.0', f'"value": {odd}'))

    assert done.why == "pruned"
    assert json.loads(done.shown.replace("9" * 5000, "9"))


def test_half_a_surrogate_pair_in_json_is_no_reason_to_fail():
    """Whoever cuts a text in the middle of an emoji leaves one behind."""
    done = shortened(RECORDS.replace("item 7", "item \ud83d"))

    assert done.why == "pruned"
    assert json.loads(done.shown)


@pytest.mark.parametrize("twice", [1, 3, 150, 299, 300, 450, 598])
def test_a_key_that_comes_twice_hides_nothing_that_should_stay(twice: int):
    named = [(f"k{n}", {"id": n, "name": f"item {n}", "value": n}) for n in range(600)]
    named[300] = ("k300", {"id": 300, "name": "item", "value": 1, "error": "it failed"})
    named.append((f"k{twice}", {"id": 600, "name": "again", "value": 2}))
    text = "{" + ", ".join(f"{json.dumps(key)}: {json.dumps(value)}" for key, value in named) + "}"
    done = shortened(text)

    assert "it failed" in done.shown
    assert json.loads(done.shown)
    assert all(f'"item {n}"' not in done.shown or done.shown.count(f'"item {n}"') == 1 for n in range(600))


def test_of_a_huge_file_the_lines_that_matter_stay_within_what_may_enter():
    parts = [f"def part_{i}(order):\n    total = order.sum() * {i}\n    return total - {i % 7}\n" for i in range(1200)]
    parts[500] = (
        "def failing_discount(order):\n    # why the discount fails: it is taken twice\n    return order.discount * 2\n"
    )
    done = shortened("\n".join(parts), Origin("read"))

    assert done.tokens_before > 2 * HUGE_TOKENS
    assert done.tokens_after <= HUGE_TOKENS
    assert "it is taken twice" in done.shown


@pytest.mark.parametrize("goal", ["Make the build pass.", "Where is a name misspelt?"])
def test_a_rare_error_comes_before_the_hundredth_of_a_common_one(goal: str):
    rng = random.Random(3)
    names = ("order", "user", "cart", "invoice", "ledger", "parcel", "session", "token", "route", "badge")

    def told(at: int) -> str:
        place = f"src/{rng.choice(names)}/{rng.choice(names)}{at % 40}.ts({rng.randrange(400)},7)"
        code = rng.choice(("2339", "2345"))
        return f"{place}: error TS{code}: Property '{rng.choice(names)}' does not exist on type 'X'."

    lines = [told(at) for at in range(1300)]
    for at in range(60, 1300, 180):
        lines[at] = (
            f"src/api/part{at}.ts({at},7): error TS2551: Property 'lenght' does not exist. Did you mean 'length'?"
        )
    lines[777] = "src/api/index.ts(12,9): error TS2538: Type 'undefined' cannot be used as an index type."
    task = Task("\n".join(lines), goal, Origin("Bash", command="npx tsc"), True, 1000, 200, b"seed")
    done = shorten(task)

    assert done.shown.count("TS2551") == len(range(60, 1300, 180))
    assert "TS2538" in done.shown
    assert done.tokens_after < HUGE_TOKENS
