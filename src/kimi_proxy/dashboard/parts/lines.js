// A text line by line, with what was cut folded away: a chosen line shows why it stayed or went.
import { html, useEffect, useMemo, useRef, useState } from "../lib/html.js";
import { cutReason } from "../codes/cut_reason.js";
import { count } from "../lib/format.js";
import { phrases } from "../lib/i18n.js";
import { why } from "../codes/why.js";
import words from "../words/lines.js";
import { Icon } from "./icon.js";
import { Windowed } from "./windowed.js";

const t = phrases(words);
const LINES_BEFORE = 3;
const ROW = 1.5; // of the type's size, which grows with the screen

/**
 * `lines`: `{line, text, kept, score, why}`; `cuts`: `{start, end, reason}`. `marker(cut)` is what was sent in the place
 * of a cut; with it, what was sent stands beside the original. `at` is the line to begin at.
 */
export function Lines({ label, lines, cuts, marker, at = 0, height = "62vh" }) {
  const [open, setOpen] = useState(() => new Set(cutAt(cuts, at) ? [cutAt(cuts, at).start] : []));
  const [chosen, choose] = useState(at);
  const frame = useRef(null);
  const high = useMemo(rowHeight, []);
  const rows = useMemo(() => rowsOf(lines, cuts, open), [lines, cuts, open]);
  useEffect(() => {
    if (at) show(frame.current, rows.findIndex((row) => row.line?.line === at), high);
    else if (marker) beginAt(frame.current, rows.findIndex((row) => row.cut), high);
  }, [at]);

  const toggle = (start) => {
    const next = new Set(open);
    if (!next.delete(start)) next.add(start);
    setOpen(next);
  };
  const step = (event) => {
    const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!by || event.target.closest("button")) return;
    event.preventDefault();
    const places = rows.flatMap((row, place) => (row.line ? [place] : []));
    const now = places.findIndex((place) => rows[place].line.line === chosen);
    const place = places[Math.max(0, Math.min(places.length - 1, now + by))];
    if (place === undefined) return;
    choose(rows[place].line.line);
    show(frame.current, place, high);
  };
  const draw = (row) =>
    row.line
      ? html`<${Line} key=${row.line.line} line=${row.line} isChosen=${row.line.line === chosen} onChoose=${choose} isBeside=${Boolean(marker)} />`
      : html`<${Gap} key=${`cut-${row.cut.start}`} cut=${row.cut} isOpen=${open.has(row.cut.start)} onToggle=${toggle} marker=${marker} />`;

  const jump = (by) => {
    const list = frame.current.querySelector(".windowed");
    const now = Math.round(list.scrollTop / high);
    const places = rows.flatMap((row, place) => (row.cut ? [Math.max(0, place - 1)] : []));
    const place = by > 0 ? places.find((each) => each > now) : places.findLast((each) => each < now);
    if (place !== undefined) list.scrollTop = place * high;
  };

  return html`<div class="lines ${marker ? "beside" : ""}" ref=${frame} style=${{ "--row": `${high}px` }} onKeyDown=${step}>
    ${cuts.length > 0 && html`<${Jumps} n=${cuts.length} jump=${jump} />`}
    ${marker && html`<div class="lines-heads" aria-hidden="true"><span>${t("original")}</span><span>${t("sent")}</span></div>`}
    <${Windowed} label=${label} rows=${rows} rowHeight=${high} height=${height} draw=${draw} />
    <${Why} line=${lines.find((each) => each.line === chosen)} cut=${cutAt(cuts, chosen)} />
  </div>`;
}

function Jumps({ n, jump }) {
  return html`<div class="lines-jumps">
    <span class="soft">${t("blocks", { n })}</span>
    <button type="button" class="quiet" onClick=${() => jump(-1)}>↑ ${t("previous")}</button>
    <button type="button" class="quiet" onClick=${() => jump(1)}>↓ ${t("next")}</button>
  </div>`;
}

function Line({ line, isChosen, onChoose, isBeside }) {
  const state = line.kept ? "kept" : "gone";
  const text = html`<code>${line.text}</code>`;
  return html`<div role="listitem" class="line ${state} ${isChosen ? "chosen" : ""}" aria-current=${isChosen ? "true" : undefined} onClick=${() => onChoose(line.line)}>
    <span class="line-number">${line.line}</span>
    ${!line.kept && html`<span class="unseen">${t("was_cut")}</span>`}${text}
    ${isBeside && html`<span class="line-sent" aria-hidden="true">${line.kept && text}</span>`}
  </div>`;
}

function Gap({ cut, isOpen, onToggle, marker }) {
  const n = cut.end - cut.start + 1;
  return html`<div role="listitem" class="line gap ${isOpen ? "open" : ""}">
    <button type="button" aria-expanded=${isOpen ? "true" : "false"} onClick=${() => onToggle(cut.start)}>
      <${Icon} name="chevron" /><span class="gap-lines">${t("cut_lines", { n, start: count(cut.start), end: count(cut.end) })}</span>
      <span class="gap-reason">${cutReason(cut.reason)}</span>
    </button>
    ${marker && html`<span class="line-sent"><code>${marker(cut)}</code></span>`}
  </div>`;
}

function Why({ line, cut }) {
  return html`<p class="lines-why" role="status">
    ${line
      ? html`<strong>${t(line.kept ? "kept_because" : "cut_because", { line: count(line.line) })}</strong> ${why(line, cut?.reason)}
          ${typeof line.score === "number" && html`<span class="badge">${t("score", { score: line.score.toFixed(2) })}</span>`}`
      : html`<span class="soft">${t("choose_a_line")}</span>`}
  </p>`;
}

const cutAt = (cuts, line) => cuts.find((cut) => cut.start <= line && line <= cut.end);

function rowsOf(lines, cuts, open) {
  const begins = new Map(cuts.map((cut) => [cut.start, cut]));
  const rows = [];
  let hiddenTo = 0;
  for (const line of lines) {
    const cut = begins.get(line.line);
    if (cut) rows.push({ cut });
    if (cut && !open.has(cut.start)) hiddenTo = cut.end;
    if (line.line > hiddenTo) rows.push({ line });
  }
  return rows;
}

/** In whole pixels: the list counts in rows. */
function rowHeight() {
  return Math.round(ROW * Number.parseFloat(getComputedStyle(document.documentElement).fontSize));
}

/** Scroll the first cut near the top, below the lines before it: it is what the viewer came for. */
function beginAt(frame, place, high) {
  const list = frame?.querySelector(".windowed");
  if (list && place > 0) list.scrollTop = Math.max(0, place - LINES_BEFORE) * high;
}

function show(frame, place, high) {
  const list = frame?.querySelector(".windowed");
  if (!list || place < 0) return;
  const top = place * high;
  if (top < list.scrollTop || top > list.scrollTop + list.clientHeight - 2 * high) {
    list.scrollTop = Math.max(0, top - list.clientHeight / 2);
  }
}
