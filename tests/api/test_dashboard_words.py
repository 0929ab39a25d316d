"""Every code that the server tells has its words in the dashboard, in French and in English."""

import re
from collections.abc import Iterator
from typing import get_args

import pytest

from kimi_proxy.api.dashboard import FOLDER
from kimi_proxy.api.errors import RefusalCode
from kimi_proxy.core.config.servers import Transport
from kimi_proxy.core.errors import (
    CompressionRefusal,
    KimiProxyError,
    LoginReason,
    NotRunReason,
    Reason,
    Shortening,
    UpstreamError,
    WarningCode,
)
from kimi_proxy.features.models.routing import NO_LARGER_MODEL
from kimi_proxy.proxy.mcp.program import ProgramState
from kimi_proxy.services.settings import ProblemCode

LANGUAGES = ("en", "fr")


def keys(file: str, language: str) -> set[str]:
    """What has words in a file of words, by the indentation that they all share."""
    text = (FOLDER / "words" / f"{file}.js").read_text("utf-8")
    (part,) = re.findall(rf"^  {language}: \{{\n(.*?)^  \}},$", text, re.M | re.S)
    return {name or quoted for name, quoted in re.findall(r'^    (?:(\w+)|"([^"]+)"):', part, re.M)}


def literals(kind: object) -> set[str]:
    """The strings of a Literal, or of a union of them."""
    found: set[str] = set()
    for each in get_args(kind):
        found |= {each} if isinstance(each, str) else literals(each)
    return found


def kinds(of: type[KimiProxyError]) -> Iterator[type[KimiProxyError]]:
    yield of
    for kind in of.__subclasses__():
        yield from kinds(kind)


ERRORS = {kind.code for kind in kinds(KimiProxyError)}
UPSTREAM = {kind.code for kind in kinds(UpstreamError)} - {"prune_failed"}  # which no chat request ends with


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize(
    ("file", "codes"),
    [
        ("reasons", literals(Reason)),
        ("errors", ERRORS | literals(RefusalCode)),
        ("errors", {f"compression_refused {reason}" for reason in literals(CompressionRefusal)}),
        ("errors", {f"server_not_run {reason}" for reason in literals(NotRunReason)}),
        ("errors", {"below_threshold", "window_unknown"}),
        ("outcome", UPSTREAM | {f"{code}_advice" for code in UPSTREAM} | {"rate_limited", "no_provider"}),
        ("shell", {f"login_{reason}" for reason in literals(LoginReason)}),
        ("warnings", literals(WarningCode)),
        ("settings", {f"problem {code}" for code in literals(ProblemCode)}),
        ("servers", {f"state_{state}" for state in literals(ProgramState)}),
        ("servers", {f"way_{transport}" for transport in literals(Transport)}),
        ("cuts", {f"why_{done}" for done in literals(Shortening)}),
    ],
)
def test_every_code_has_its_words(file: str, codes: set[str], language: str):
    assert codes - keys(file, language) == set()


def test_no_words_are_left_of_codes_that_nobody_tells_any_more():
    ours = {"stage_failed", "other"}
    with_reason = {key for key in keys("errors", "en") if " " in key}

    assert keys("reasons", "en") - ours == literals(Reason)
    assert keys("warnings", "en") == literals(WarningCode)
    assert {key.split()[0] for key in with_reason} <= ERRORS
    assert keys("errors", "en") - with_reason - {
        "below_threshold",
        "window_unknown",
        "unreachable",
    } == ERRORS | literals(RefusalCode)


def test_the_lists_hold_what_is_known_to_be_told():
    assert {NO_LARGER_MODEL, "history_changed", "below_threshold"} < literals(Reason)
    assert {"internal_error", "compression_refused"} < ERRORS
