"""Policies for cutting tool results: three depths, and the results that agents are likely to quote."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from kimi_proxy.core.lines import split
from kimi_proxy.core.prune import CallContext, Origin
from kimi_proxy.features.pruning import score
from kimi_proxy.features.pruning.call_signals import output_signals
from kimi_proxy.features.pruning.model import load_scorers
from kimi_proxy.features.sanitizer.rows import READERS, strip_row_numbers
from kimi_proxy.features.sanitizer.shorten import HUGE_TOKENS, KEPT_OF_HUGE

PolicyName = Literal["careful", "default", "deep"]

# Of results over 1,000 tokens in sessions that nothing was learned from, 7 % of those below .2 were used, 46 % of those
# between .2 and .5, 78 % of those above.
SPARED_FROM = 0.3
LIKELY_MAX_CHARS = 256 * 1024  # of a longer one its tool decides: the event loop would wait for reading it

REPORTERS = frozenset({"task", "agent", "taskoutput", "agentoutputtool"})
QUOTING_EDITORS = frozenset(
    {"edit", "multiedit", "edit_file", "str_replace", "str_replace_editor", "str_replace_based_edit_tool", "replace"}
    | {"replace_in_file", "search_replace", "strreplace"}
)
# A command that prints a file or a change of one, and not what another printed. An agent may call it from a script.
_PRINTS_FILE = re.compile(
    r"(?:^|&&|\|\||[;(\"'`\n])[ \t]{0,8}(?:cat|bat|sed|nl|head|tail|awk|less|more)[ \t]"
    r"|\bgit[ \t][^|;&\n]{0,80}?(?:diff|show)\b"
)
# A log is read to find what went wrong, not to be edited.
_NAMES_LOG = re.compile(r"\.(?:log|out|err)(?:\.\d{1,4})?(?![\w.])")
_END_OF_COMMAND = re.compile(r"[|;&\n]")
COMMAND_CHARS = 4000


@dataclass(frozen=True, slots=True)
class EntryCut:
    """Limits for cutting a new result: the tokens above which it is cut, and the tokens that stay at least."""

    over_tokens: int
    keep_tokens: int = 0


@dataclass(frozen=True, slots=True)
class WarmCut:
    """A cut of cached results: it must pay off within so many requests, and spares so many of the newest results."""

    within_requests: int  # 0: none is made
    keep_newest: int
    spares_files: bool = False  # results that show a file stay


@dataclass(frozen=True, slots=True)
class Policy:
    """Figures measured on real agents' sessions (`scripts/bench sessions`); see docs/sanitizer.md."""

    entry_tokens: int  # a new result with more tokens is cut when it enters
    spares_quoted: bool  # but not what agents are likely to quote, unless it is huge
    keep_newest: int = 0  # newest results that a free cut of old ones spares
    file_requests: int = 0  # requests for which such a cut spares a file that was read, unless it is large
    pays_within: int = 0  # requests within which a cut of cached results has to pay; 0: none is made
    keep_cached: int = 0  # newest results that such a cut spares
    old_tokens: int = 200  # an old result with fewer tokens stays: its marker would cost half of it

    @property
    def quoted_tokens(self) -> int:
        """Return the tokens up to which a new result that is likely to be quoted is sent uncut."""
        return HUGE_TOKENS if self.spares_quoted else self.entry_tokens

    def entry_cut(self, origin: Origin, edits_by_quoting: bool, likely: float | None = None) -> EntryCut:
        """Return how a new result is cut, which is used with that probability if one is known."""
        is_spared = is_quoted(origin, edits_by_quoting)
        if likely is not None and edits_by_quoting:  # of agents that patch files too few sessions were learned from
            is_spared = likely >= SPARED_FROM
        if self.spares_quoted and is_spared:
            return EntryCut(HUGE_TOKENS, KEPT_OF_HUGE)
        return EntryCut(self.entry_tokens)

    def warm_cut(self, has_tools: bool) -> WarmCut:
        """Return when results that are cached are cut at a new turn of the user.

        Files stay, for an edit or a patch quotes them later. Without tools every result is part of the user's words,
        and which of them shows a file is seldom known.
        """
        return WarmCut(self.pays_within, self.keep_cached, spares_files=self.spares_quoted and has_tools)


POLICIES: Mapping[PolicyName, Policy] = {
    "careful": Policy(entry_tokens=1_000, spares_quoted=True, keep_newest=24),
    "default": Policy(
        entry_tokens=1_000, spares_quoted=True, keep_newest=2, file_requests=25, pays_within=20, keep_cached=5
    ),
    "deep": Policy(entry_tokens=1_000, spares_quoted=False, keep_newest=3, pays_within=20, keep_cached=3),
}


def is_quoted(origin: Origin, edits_by_quoting: bool) -> bool:
    """Return whether agents are likely to quote a result.

    Of the results over 1,000 tokens of Claude Code's `Read` 45 % are quoted later, mostly to edit the file, and half of
    the reports of agents that it starts; of its `Grep` and `Bash` 6 %. Codex reads by commands: 18 to 33 % of what
    `sed` and the like print is quoted by its patches, 1 to 8 % of the rest.
    """
    tool = origin.tool.lower()
    return tool in REPORTERS or (tool in READERS if edits_by_quoting else _prints_file(origin))


def shows_file(origin: Origin) -> bool:
    """Return whether a result shows a file, or a change of one."""
    return origin.tool.lower() in READERS or _prints_file(origin)


def _prints_file(origin: Origin) -> bool:
    command = origin.command[:COMMAND_CHARS]
    for found in _PRINTS_FILE.finditer(command):
        end = _END_OF_COMMAND.search(command, found.end())
        if not _NAMES_LOG.search(command, found.end(), end.start() if end else len(command)):
            return True
    return False


def likely_used(text: str, context: CallContext | None) -> float | None:
    """Return the probability that an agent goes on to use a line of a new result; None where nothing was learned."""
    if context is None or len(text) > LIKELY_MAX_CHARS:
        return None
    return score.likely_used(output_signals(strip_row_numbers(split(text)), context), load_scorers())


def edits_by_quoting(tools: Iterable[str]) -> bool:
    """Return whether an agent with these tools edits files by quoting the lines to replace."""
    return any(name.lower() in QUOTING_EDITORS for name in tools)
