// What was cut, newest first, as it happens.
import { get, useAnswer } from "../../lib/api.js";
import { cutReason } from "../../codes/cut_reason.js";
import { titleOf } from "../../state/focus.js";
import { count, NONE, percent, tokens, when } from "../../lib/format.js";
import { html, useState } from "../../lib/html.js";
import { phrases } from "../../lib/i18n.js";
import { useTurnAfter } from "../../state/refresh.js";
import { known } from "../../state/traffic.js";
import { Card } from "../../parts/card.js";
import { Answered, Failure } from "../../parts/notice.js";
import { Start } from "../../parts/start.js";
import { Table } from "../../parts/table.js";
import { go, link } from "../../lib/route.js";
import words from "../../words/cuts.js";

const t = phrases(words);
const PAGE = 50;
const MAX_SHOWN = 500;

export function CutList() {
  const answer = useAnswer(`/api/cuts?limit=${PAGE}`, useTurnAfter(isCut));
  return html`<${Card} title=${t("newest")} note=${t("newest_note")}>
    <${Answered} answer=${answer}>${(page) => html`<${Pages} first=${page} />`}<//>
  <//>`;
}

const isCut = (event) =>
  event.type === "init" || // after a gap: no event said what was cut meanwhile
  event.type === "prune_event" ||
  (event.type === "sanitizer_event" && event.cut_now > 0) ||
  (event.type === "gateway_event" && event.outcome === "masked");

function Pages({ first }) {
  const [older, setOlder] = useState({ cuts: [], before: undefined }); // all that was listed: newer ones push it down
  const [error, setError] = useState(null);
  const before = older.before === undefined ? first.before : older.before;
  const newest = new Set(first.cuts.map((cut) => cut.id));
  const rows = [...first.cuts, ...older.cuts.filter((cut) => !newest.has(cut.id))];
  const more = () =>
    get(`/api/cuts?limit=${PAGE}&before=${before}`).then(
      (page) => setOlder({ cuts: [...rows, ...page.cuts], before: page.before }),
      setError,
    );
  return html`
    <${Table} caption=${t("newest")} columns=${columns()} rows=${rows} keyOf=${(cut) => cut.id} empty=${t("empty")} onChoose=${(cut) => go("cuts", cut.id)} />
    ${rows.length === 0 && html`<${Start} />`}
    ${error && html`<${Failure} error=${error} />`}
    ${before !== null &&
    (rows.length < MAX_SHOWN
      ? html`<p class="cuts-more"><button type="button" onClick=${more}>${t("more")}</button></p>`
      : html`<p class="cuts-more soft">${t("too_many", { n: rows.length })}</p>`)}
  `;
}

function columns() {
  return [
    { key: "when", title: t("when"), cell: (cut) => html`<a href=${link("cuts", cut.id)}>${when(cut.created_at)}</a>` },
    { key: "via", title: t("via"), cell: (cut) => html`<span class="badge">${t(`via_${cut.via}`)}</span>` },
    { key: "what", title: t("what"), wide: true, cell: about },
    { key: "reason", title: t("reason"), cell: reason },
    { key: "lines", title: t("lines"), align: "right", cell: lines },
    { key: "tokens", title: t("tokens"), align: "right", cell: spared },
  ];
}

/** What was wanted of the text, else where it came from. */
function about(cut) {
  const from = cut.server || titleOf(known.sessions.get(cut.session_id));
  const said = cut.goal || cut.preview || (cut.kind === "history" ? t("kind_history") : cut.id);
  return html`<span>${from && html`<span class="soft">${from} · </span>`}${said}</span>`;
}

function reason(cut) {
  const [first] = cut.reasons;
  const text = first ? cutReason(first) : t(cut.why ? `why_${cut.why}` : `kind_${cut.kind}`);
  return html`<span class="cuts-reason">${text}</span>`;
}

const lines = (cut) => (cut.lines_cut === null ? NONE : t("of", { part: count(cut.lines_cut), all: count(cut.original_lines) }));

function spared(cut) {
  if (cut.tokens_before === null) return NONE;
  const saved = cut.tokens_before - cut.tokens_after;
  const change = t("from_to", { before: tokens(cut.tokens_before), after: tokens(cut.tokens_after) });
  return html`${change} <span class="soft">−${percent((100 * saved) / cut.tokens_before)}</span>`;
}
