"""An audit as text, as JSON, and as one HTML page that needs nothing else."""

import textwrap
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from html import escape
from itertools import islice

from kimi_proxy import __version__
from kimi_proxy.core.counting import count_of
from kimi_proxy.core.json import JsonObject
from kimi_proxy.features import tool_weights as tools
from kimi_proxy.features.tool_weights import is_core
from kimi_proxy.lab.audit import MOST_PARTS, Audit, MissTotals, PolicyTotals, SessionAudit, numbers_of
from kimi_proxy.lab.measured import STAND_IN
from kimi_proxy.lab.savings import DEFAULT, Lost

MIN_SHARE = 0.005  # of the money: smaller shares are omitted from tables for people
LEAST_OPTION = 0.001  # of the money, for a setting to be named
MOST_TOOLS = 8
MOST_DESCRIBED = 20
MOST_VERSIONS = 8
MOST_LOST = 10
MOST_LOSERS = 5
LINE_CHARS = 100  # of every line for people

NOT_DESCRIBED = "These sessions do not keep them. Recordings do, and the dashboard's context map shows them live."
NO_MISSES = "Nothing that was cached had to be written again."
_POLICY_HEAD = ("policy", "saved", "USD", "extra turns/100", "harmed", "recovery USD", "losing")
_PART_HEAD = ("cost USD", "cache misses", "saved", "extra turns/100", "harmed", "losing")
_MISS_HEAD = ("cause", "times", "median pause", "tokens", "of all", "USD")


START = (
    "To begin: kimi-proxy start, then in another terminal kimi-proxy run --proxy claude (with an API key) or "
    "kimi-proxy init claude --hooks (with a plan login). kimi-proxy init --help lists other agents."
)
MORE = "With --more: prompt cache misses, tools, all policies, versions, and the lines that would have been lost."


def as_text(audit: Audit, more: bool = True) -> str:
    """Return the answer, then where the money went; with `more`, all else that is known."""
    out = [*_wrap(answer(audit), indent=""), "", *_wrap(summary(audit), indent=""), *_warn_of_prices(audit)]
    out += _wrap(_left_out(audit), indent="")
    out += ["", "Where the money went", *_grid(_shares(audit.cost_by_part(), audit.cost_usd))]
    out += _wrap(_warn_of_counts(audit))
    if more:
        out += _details(audit)
    out += ["", *_wrap(START, indent="")]
    out += [] if more else _wrap(MORE, indent="")
    return "\n".join(line[:LINE_CHARS] for line in out) + "\n"


def answer(audit: Audit) -> str:
    """Return what the default policy would have saved in these sessions, and what it would have risked."""
    total = next((total for total in audit.totals() if total.policy == DEFAULT), None)
    if total is None:
        return "There are no sessions to judge by."
    if total.saved_usd < 0:
        more = f"{-total.saved_usd:,.2f} USD more than {audit.cost_usd:,.2f} USD ({-total.saved:.1%})"
        return f"You would have paid {more}."
    saved = f"You would have saved {total.saved_usd:,.2f} of {audit.cost_usd:,.2f} USD ({total.saved:.1%})"
    if not total.harmed:
        return f"{saved}; no tool result that you used would have lost a line."
    return (
        f"{saved}; {total.harmed:.1%} of the tool results that you used would have lost a line, which the model can "
        "read back."
    )


def _details(audit: Audit) -> list[str]:
    out = ["", "What was in the prompt cache and had to be written again", *_miss_lines(audit)]
    out += ["", "Tools whose outputs cost most", *_grid(_shares(audit.cost_by_tool(), audit.cost_usd)[:MOST_TOOLS])]
    out += ["", "Tools that every request describes", *(_grid(_described_rows(audit)) or [f"  {NOT_DESCRIBED}"])]
    out += _wrap(_advise_on_tools(audit))
    out += ["", "What [sanitizer] policy would have saved, net of everything it costs"]
    out += _grid([_POLICY_HEAD, *_policy_rows(audit)])
    out += _wrap(_describe_options(audit))
    for title, parts in (("source", audit.by_source()), ("version of the agent", _most(audit.by_version()))):
        if len(parts) > 1:
            rows = _grid([(title, *_PART_HEAD), *_part_rows(parts)])
            out += ["", f"By {title}, with the policy {DEFAULT.name}", *rows]
    if lost := list(_lost(audit)):
        out += ["", f"Used lines that {DEFAULT.name} would have cut, and the answer that used them"]
        out += [line for one in lost for line in (f"  {_where(*one)}", f"    {_clip(one[1].line)}")]
    if losers := _losers(audit):
        out += ["", f"Sessions that would have lost with {DEFAULT.name}", *_grid(losers)]
    return out


def summary(audit: Audit) -> str:
    agents = ", ".join(_name_versions(audit))
    helpers = f" and {count_of(audit.sub_agents, 'sub-agent')}" if audit.sub_agents else ""
    return (
        f"{count_of(len(audit.whole_sessions()), 'session')}{helpers} of {agents}: "
        f"{count_of(audit.requests, 'request')}, {audit.cost_usd:,.2f} USD at list prices"
    )


def _name_versions(audit: Audit) -> Iterator[str]:
    """Yield each agent with its oldest and newest version, as far as its sessions name them."""
    for agent in sorted({session.agent for session in audit.sessions}):
        found = sorted({one.version for one in audit.sessions if one.agent == agent and one.version}, key=numbers_of)
        versions = f" {found[0]} to {found[-1]}" if len(found) > 1 else f" {found[0]}" if found else ""
        yield agent + versions


def _left_out(audit: Audit) -> str:
    if not audit.left_out:
        return ""
    return (
        f"Left out: {count_of(audit.left_out, 'session')} that went through kimi-proxy, because your agent stores "
        "longer texts than were sent. kimi-proxy report shows what these cost and saved."
    )


def _warn_of_counts(audit: Audit) -> str:
    """Say so if the parts of the money are more than all of it."""
    if audit.parts_share <= MOST_PARTS:
        return ""
    disagreeing = sum(sum(one.spent.values()) > MOST_PARTS * one.cost_usd for one in audit.sessions)
    return (
        f"These parts add up to {100 * audit.parts_share:.0f} % of the cost: the counts disagree. In {disagreeing} of "
        f"{len(audit.sessions)} sessions and sub-agents the stored texts are longer than the prompts that the provider "
        "counted, as after a proxy that shortens them. Do not rely on the figures of these."
    )


def _warn_of_prices(audit: Audit) -> list[str]:
    models = audit.unpriced_models()
    return _wrap(f"No list price is known for {', '.join(models)}: priced as {STAND_IN}.", indent="") if models else []


def _wrap(text: str, indent: str = "  ") -> list[str]:
    return textwrap.wrap(text, LINE_CHARS, initial_indent=indent, subsequent_indent=f"{indent}  ")


def _shares(parts: dict[str, float], cost: float) -> list[tuple[str, ...]]:
    rows = ((name, usd / cost if cost else 0.0, usd) for name, usd in parts.items())
    return [(name, f"{share:.1%}", f"{usd:,.2f}") for name, share, usd in rows if share >= MIN_SHARE]


def _miss_lines(audit: Audit) -> list[str]:
    rows = _miss_rows(audit)
    return [*(_grid([_MISS_HEAD, *rows]) if rows else [f"  {NO_MISSES}"]), *_wrap(_advise_on_hour_caches(audit))]


def _miss_rows(audit: Audit) -> list[tuple[str, ...]]:
    """Return the causes, and what all of them cost beyond what reading from the cache would have."""
    totals = audit.misses()
    rows = [
        (one.cause, f"{one.times:,}", _duration(one.median_pause_s), f"{one.tokens:,.0f}", *_money(audit, one.usd))
        for one in totals
    ]
    usd = sum(one.usd for one in totals)
    tokens = sum(one.tokens for one in totals)
    times = sum(o.times for o in totals)
    return [*rows, ("all", f"{times:,}", "", f"{tokens:,.0f}", *_money(audit, usd))] if rows else []


def _money(audit: Audit, usd: float) -> tuple[str, str]:
    return f"{usd / audit.cost_usd if audit.cost_usd else 0.0:.1%}", f"{usd:,.2f}"


def _duration(seconds: float) -> str:
    for unit, size in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def _advise_on_hour_caches(audit: Audit) -> str:
    found = audit.hour_caches()
    if found is None:
        return ""
    return (
        f"{found.sessions} sub-agents of Claude Code cached for an hour. With 5 minutes they would have cost "
        f"{found.premium_usd:,.2f} USD less ({found.premium_usd / found.cost_usd:.0%} of their cost). To change it: "
        '"subagentPromptCacheTtl": "5m" in ~/.claude/settings.json (Claude Code 2.1.243 or newer).'
    )


def _describe_options(audit: Audit) -> str:
    """Return what settings that are off by default would have changed; empty where that is nothing."""
    options = {name: usd for name, usd in audit.options().items() if abs(usd) > LEAST_OPTION * audit.cost_usd}
    found = [
        f"{name} = true would have {'saved' if usd > 0 else 'cost'} {abs(usd):,.2f} USD more "
        f"({abs(usd) / audit.cost_usd:.1%})"
        for name, usd in options.items()
    ]
    if not found:
        return ""
    return f"Beyond {DEFAULT.name}, in [cache]: {', '.join(found)}."


def _described_rows(audit: Audit) -> list[tuple[str, ...]]:
    """Return the cost of tool definitions by MCP server, with the line that turns each off."""
    rows: list[tuple[str, ...]] = []
    for one, usd in audit.described_tools():
        name = f"{one.name} ({one.tools} tools, MCP)" if one.is_server else one.name
        calls = f"{one.calls:,} calls" if one.calls else "never called"
        rows.append((name, *_money(audit, usd), calls, one.switch_off))
    width = max((len(row[-1]) for row in rows), default=0)
    return [(*row[:-1], row[-1].ljust(width)) for row in rows[:MOST_DESCRIBED]]


def _advise_on_tools(audit: Audit) -> str:
    """Return the setting that leaves out tools that were never called; empty if there are none."""
    found = (one for one, _ in audit.described_tools() if not one.calls and (one.is_server or not is_core(one.name)))
    rare = ", ".join(f'"{_clip(one.pattern)}"' for one in islice(found, MOST_DESCRIBED))
    return f"To load those on demand that were never called: [deferred_tools] tools = [{rare}]" if rare else ""


def _policy_rows(audit: Audit) -> Iterator[tuple[str, ...]]:
    for total in audit.totals():
        yield (total.policy.name, *_cells(total))


def _part_rows(parts: dict[str, Audit]) -> Iterator[tuple[str, ...]]:
    for name, part in parts.items():
        total = next(total for total in part.totals() if total.policy == DEFAULT)
        misses, _ = _money(part, sum(miss.usd for miss in part.misses()))
        saved, _, turns, harmed, _, losing = _cells(total)
        yield f"{name} ({len(part.whole_sessions())})", f"{part.cost_usd:,.2f}", misses, saved, turns, harmed, losing


def _most(versions: dict[str, Audit]) -> dict[str, Audit]:
    """Return the dearest versions, and the rest as one."""
    rest = list(versions.values())[MOST_VERSIONS:]
    others = [session for part in rest for session in part.sessions]
    return {**dict(list(versions.items())[:MOST_VERSIONS]), **({"others": Audit(others)} if others else {})}


def _cells(total: PolicyTotals) -> tuple[str, ...]:
    return (
        f"{total.saved:.1%}",
        f"{total.saved_usd:,.2f}",
        f"{total.extra_turns_per_100:.1f}",
        f"{total.harmed:.1%}",
        f"{total.recovery_usd:,.2f}",
        f"{total.losing:.1%}",
    )


def _grid(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return a table, whose first column is clipped where lines would be too long."""
    if not rows:
        return []
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    first = min(widths[0], max(LINE_CHARS - 2 - sum(width + 2 for width in widths[1:]), 10))
    cells = ((_clip(row[0], first), "  ".join(map(str.rjust, row[1:], widths[1:]))) for row in rows)
    return [f"  {name:<{first}}  {rest}".rstrip() for name, rest in cells]


def _lost(audit: Audit) -> Iterator[tuple[SessionAudit, Lost]]:
    """Yield one line of a session after the other, from those that have any, until enough are shown."""
    having = [session for session in audit.sessions if session.lost]
    for session in having[:MOST_LOST]:
        yield session, session.lost[0]


def _where(session: SessionAudit, lost: Lost) -> str:
    by = f"the call of {lost.by}" if lost.by else "the answer"
    return f"{session.id[:36]} request {lost.request + 1}, {by} used a line of {lost.tool or 'an output'}"


def _clip(line: str, most: int = LINE_CHARS - 5) -> str:
    clipped = line if len(line) <= most else f"{line[: most - 1]}…"
    return "".join(character if character.isprintable() else "�" for character in clipped)


def _losers(audit: Audit) -> list[tuple[str, ...]]:
    return [
        (f"{one.agent} {one.id}", f"{one.saved_share(DEFAULT.name):.1%}", f"{one.cost_usd:.2f}")
        for one in audit.losers()[:MOST_LOSERS]
    ]


def as_json(audit: Audit) -> dict[str, object]:
    hour = audit.hour_caches()
    return {
        "version": __version__,
        "sessions": len(audit.whole_sessions()),
        "sub_agents": audit.sub_agents,
        "left_out": audit.left_out,
        "requests": audit.requests,
        "cost_usd": round(audit.cost_usd, 6),
        "spent_usd": _round(audit.cost_by_part()),
        "parts_percent": round(100 * audit.parts_share, 1),
        "tools_usd": _round(audit.cost_by_tool()),
        "cache_misses": [_miss_to_json(total) for total in audit.misses()],
        "hour_caches": None if hour is None else {"sessions": hour.sessions, "premium_usd": round(hour.premium_usd, 6)},
        "unpriced_models": list(audit.unpriced_models()),
        "described_tools": [{**tools.to_json(one), "cost_usd": round(usd, 6)} for one, usd in audit.described_tools()],
        "policies": [_policy_to_json(total) for total in audit.totals()],
        "options_usd": _round(audit.options()),
        "sources": {name: _part_to_json(part) for name, part in audit.by_source().items()},
        "versions": {name: _part_to_json(part) for name, part in audit.by_version().items()},
        "details": [_session_to_json(session) for session in audit.sessions],
    }


def _round(parts: dict[str, float]) -> JsonObject:
    return {name: round(usd, 6) for name, usd in parts.items()}


def _part_to_json(part: Audit) -> JsonObject:
    return {
        "sessions": len(part.whole_sessions()),
        "sub_agents": part.sub_agents,
        "requests": part.requests,
        "cost_usd": round(part.cost_usd, 6),
        "spent_usd": _round(part.cost_by_part()),
        "cache_misses": [_miss_to_json(total) for total in part.misses()],
        "policies": [_policy_to_json(total) for total in part.totals()],
    }


def _miss_to_json(total: MissTotals) -> JsonObject:
    return {
        "cause": total.cause,
        "times": total.times,
        "median_pause_s": round(total.median_pause_s, 1),
        "tokens": round(total.tokens),
        "cost_usd": round(total.usd, 6),
    }


def _policy_to_json(total: PolicyTotals) -> JsonObject:
    return {
        "name": total.policy.name,
        "saved_percent": round(100 * total.saved, 2),
        "saved_usd": round(total.saved_usd, 6),
        "extra_turns_per_100": round(total.extra_turns_per_100, 2),
        "recovery_usd": round(total.recovery_usd, 6),
        "harmed_percent": round(100 * total.harmed, 2),
        "losing_percent": round(100 * total.losing, 2),
        "losing_over_1_percent": round(100 * total.losing_much, 2),
        "worst_percent": round(100 * total.worst, 2),
    }


def _session_to_json(session: SessionAudit) -> JsonObject:
    return {
        "agent": session.agent,
        "version": session.version,
        "source": session.source,
        "id": session.id,
        "is_sidechain": session.is_sidechain,
        "began_at": session.began_at,
        "requests": session.requests,
        "outputs": session.outputs,
        "used_outputs": session.used_outputs,
        "cost_usd": round(session.cost_usd, 6),
        "saved_usd": {name: round(session.saved_usd(name), 6) for name in session.policies},
        "cache_misses": [
            {
                "request": miss.request + 1,
                "cause": miss.cause,
                "pause_s": round(miss.pause_s, 1),
                "tokens": round(miss.tokens),
                "cost_usd": round(miss.usd, 6),
            }
            for miss in session.misses
        ],
        "lost": [
            {"request": one.request + 1, "tool": one.tool, "line": one.line, "used_by": one.by} for one in session.lost
        ],
    }


_WIDE_STYLE = """
body{max-width:64rem}th,td{text-align:right}th:first-child,td:first-child{text-align:left}code{overflow-wrap:anywhere}
"""
_READING = """
Every request of these sessions was priced again with less in its prompt. Saved is net: what the prompt cache loses, the
turns in which the model reads something back, and the tool for that are taken off. An output is harmed if a line was
cut from it that the agent later wrote word for word, so that it would have needed an extra turn. Paraphrase is not
seen, so harm is a lower bound. Nothing was sent anywhere to make this page.
"""
WIDTH, BAR, LEFT = 800, 26, 220
COLOURS = ("#0b6e4f", "#c8553d", "#3d5a80", "#8e6c8a", "#b08900", "#6c757d", "#2a9d8f", "#7f4f24")


def as_html(audit: Audit) -> str:
    title = "What your agents' sessions cost, and what could be saved"
    said = summary(audit), _left_out(audit), " ".join(_warn_of_prices(audit))
    losers = _losers(audit)
    body = [
        f'<p class="faint">kimi-proxy {escape(__version__)} · {datetime.now(UTC):%Y-%m-%d}</p>',
        *(f"<p>{escape(line)}</p>" for line in said if line),
        "<h2>Where the money went</h2>",
        f"<p>{escape(_warn_of_counts(audit))}</p>" if audit.parts_share > MOST_PARTS else "",
        _bars([(name, usd / audit.cost_usd) for name, usd in audit.cost_by_part().items()] if audit.cost_usd else []),
        "<h2>What was in the prompt cache and had to be written again</h2>",
        _html_table(_MISS_HEAD, _miss_rows(audit)) if audit.misses() else f"<p>{NO_MISSES}</p>",
        f"<p>{escape(_advise_on_hour_caches(audit))}</p>",
        "<h2>What would have been saved</h2>",
        f"<p>{_READING}</p>",
        _bars([(total.policy.name, total.saved) for total in audit.totals()]),
        _html_table(_POLICY_HEAD, _policy_rows(audit)),
        f"<p>{escape(_describe_options(audit))}</p>",
        f"<h2>Each session with the policy {DEFAULT.name}</h2>",
        _strip(audit),
        "<h2>By source</h2>",
        _html_table(("source", *_PART_HEAD), _part_rows(audit.by_source())),
        "<h2>By version of the agent</h2>",
        _html_table(("version", *_PART_HEAD), _part_rows(_most(audit.by_version()))),
        "<h2>Tools whose outputs cost most</h2>",
        _html_table(("tool", "of all", "USD"), _shares(audit.cost_by_tool(), audit.cost_usd)[:MOST_TOOLS]),
        "<h2>Tools that every request describes</h2>",
        _html_table(("tool", "of all", "USD", "calls", "switched off by"), _described_rows(audit))
        if audit.described_tools()
        else f"<p>{escape(NOT_DESCRIBED)}.</p>",
        f"<p>{escape(_advise_on_tools(audit))}</p>",
        "<h2>Used lines that the default would have cut</h2>",
        "".join(f"<p>{escape(_where(*one))}<br><code>{escape(_clip(one[1].line))}</code></p>" for one in _lost(audit))
        or "<p>None.</p>",
        "<h2>Sessions that would have lost with the default</h2>",
        _html_table(("session", "saved", "of, USD"), losers) if losers else "<p>None.</p>",
    ]
    return page(title, body, _WIDE_STYLE)


_STYLE = """
:root{color-scheme:light dark}
body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}
h1{margin-bottom:0}h2{margin-top:2.5rem}.faint{opacity:.7}
table{border-collapse:collapse;width:100%;font-size:.9rem;font-variant-numeric:tabular-nums}
th,td{text-align:left;padding:.3rem .6rem .3rem 0;border-bottom:1px solid rgba(128,128,128,.3);vertical-align:top}
tr.first td{font-weight:600}svg{width:100%;height:auto}code{font-size:.85em}
.scroll{overflow-x:auto}
"""


def page(title: str, body: Iterable[str], style: str = "") -> str:
    """Return an HTML page that needs nothing else; `style` is added to what all of ours have."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_STYLE}{style}</style></head>\n"
        f"<body><h1>{escape(title)}</h1>{''.join(body)}</body></html>\n"
    )


def html_table(head: Sequence[str], rows: Sequence[Sequence[str]], first_is_bold: bool = False) -> str:
    """Return a table of cells that are HTML already."""
    shown = "".join(f"<th>{cell}</th>" for cell in head)
    lines = [f"<tr>{shown}</tr>"]
    for i, row in enumerate(rows):
        cells = "".join(f"<td>{cell}</td>" for cell in row)
        lines.append(f"<tr{' class=first' if first_is_bold and i == 0 else ''}>{cells}</tr>")
    return f'<div class="scroll"><table>{"".join(lines)}</table></div>'


def _html_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return html_table([escape(cell) for cell in head], [[escape(cell) for cell in row] for row in rows])


def _bars(shares: Sequence[tuple[str, float]]) -> str:
    """Draw a horizontal bar for each share; a share below zero has a number and no bar."""
    longest = max((share for _, share in shares), default=0.0) or 1.0
    parts: list[str] = []
    for at, (name, share) in enumerate(shares):
        y, length = at * BAR, max(share, 0.0) / longest * (WIDTH - LEFT - 70)
        parts.append(
            f'<text x="{LEFT - 8}" y="{y + 17}" text-anchor="end" fill="currentColor">{escape(name[:32])}</text>'
            f'<rect x="{LEFT}" y="{y + 5}" width="{length:.1f}" height="{BAR - 10}" fill="{COLOURS[0]}"/>'
            f'<text x="{LEFT + length + 6:.1f}" y="{y + 17}" fill="currentColor">{share:.1%}</text>'
        )
    return _svg(len(shares) * BAR, "Shares of the money", parts)


def _strip(audit: Audit) -> str:
    """Draw a dot for each session: across its saving, up its cost."""
    height, low, high = 220, -0.1, 0.6
    sessions = audit.whole_sessions()
    dearest = max((session.cost_usd for session in sessions), default=0.0) or 1.0
    parts: list[str] = []
    for tenth in range(-1, 7):
        x = _across(tenth / 10, low, high)
        parts.append(
            f'<line x1="{x}" x2="{x}" y1="8" y2="{height - 24}" stroke="currentColor" opacity=".15"/>'
            f'<text x="{x}" y="{height - 6}" text-anchor="middle" fill="currentColor">{tenth * 10} %</text>'
        )
    for session in sessions:
        share = session.saved_share(DEFAULT.name)
        saved = min(max(share, low), high)
        y = height - 30 - (session.cost_usd / dearest) ** 0.5 * (height - 50)
        colour = COLOURS[1] if saved < 0 else COLOURS[0]
        parts.append(
            f'<circle cx="{_across(saved, low, high)}" cy="{y:.1f}" r="4" fill="{colour}" opacity=".6">'
            f"<title>{escape(session.id[:60])}: {share:.1%} of {session.cost_usd:.2f} USD</title>"
            "</circle>"
        )
    return _svg(height, "Saving of each session; dearer ones are higher", parts)


def _across(share: float, low: float, high: float) -> float:
    return round(30 + (share - low) / (high - low) * (WIDTH - 60), 1)


def _svg(height: int, label: str, parts: Iterable[str]) -> str:
    return (
        f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(label)}" '
        f'font-family="system-ui, sans-serif" font-size="12">{"".join(parts)}</svg>'
    )
