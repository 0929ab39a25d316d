// What was compressed before: each unfolds to the summary that stands, or stood, for the old messages.
import { count, percent, tokens, when } from "../../lib/format.js";
import { html } from "../../lib/html.js";
import { phrases } from "../../lib/i18n.js";
import { Copy } from "../../parts/copy.js";
import { Fold } from "../../parts/fold.js";
import { Empty } from "../../parts/notice.js";
import { link } from "../../lib/route.js";
import words from "../../words/compression.js";

const t = phrases(words);

export function Past({ stats }) {
  const rows = stats.history ?? [];
  if (rows.length === 0) return html`<${Empty}>${t("none")}<//>`;
  return html`<ol class="past">
    ${rows.map((row) => html`<li key=${row.compression_id}><${Entry} row=${row} active=${stats.active} /></li>`)}
  </ol>`;
}

function Entry({ row, active }) {
  const head = html`<span class="past-head number">
    <span>${when(moment(row.at))}</span>
    <span class="soft">${t(row.automatic ? "automatic" : "by_hand")}</span>
    <span>${t("from_to", { before: tokens(row.original_tokens), after: tokens(row.compressed_tokens) })}</span>
    <span class="soft">−${percent(saved(row))}</span>
    <${State} row=${row} active=${active} />
  </span>`;
  return html`<${Fold} title=${head}><${Facts} row=${row} active=${active} /><${Summary} row=${row} /><//>`;
}

const moment = (at) => (typeof at === "number" ? at * 1000 : at);

const saved = (row) => (row.original_tokens ? 100 * (1 - row.compressed_tokens / row.original_tokens) : 0);

const stateOf = (row, active) => (row.undone ? "undone" : row.compression_id === active ? "active" : "replaced");

function State({ row, active }) {
  const state = stateOf(row, active);
  return html`<span class="badge ${state === "active" ? "ok" : ""}">${t(`state_${state}`)}</span>`;
}

function Facts({ row, active }) {
  const state = stateOf(row, active);
  const facts = [
    ["before", t("in_tokens", { tokens: count(row.original_tokens) })],
    ["after", t("in_tokens", { tokens: count(row.compressed_tokens) })],
    typeof row.messages_removed === "number" && ["removed", count(row.messages_removed)],
    ["state", row.undone_at ? t("undone_at", { at: when(moment(row.undone_at)) }) : t(`state_${state}`)],
  ];
  return html`<dl class="facts">
    ${facts.filter(Boolean).map(([name, value]) => html`<div key=${name}><dt>${t(name)}</dt><dd class="number">${value}</dd></div>`)}
  </dl>`;
}

function Summary({ row }) {
  const by = t(row.summary_by === "provider" ? "by_provider" : "by_heuristic");
  return html`<section class="side" aria-label=${t("in_place")}>
    <header>
      <h3>${t("in_place")} <span class="soft">${by}</span></h3>
      <${Copy} text=${row.summary ?? ""} />
    </header>
    <pre tabindex="0" class="mono">${row.summary || t("no_summary")}</pre>
    ${row.original_id && html`<p><a href=${link("cuts", row.original_id)}>${t("to_original")}</a></p>`}
  </section>`;
}
