// What was compressed before.
import { percent, tokens, when } from "../../format.js";
import { html } from "../../html.js";
import { phrases } from "../../i18n.js";
import { Table } from "../../parts/table.js";
import words from "../../words/compression.js";

const t = phrases(words);

export function Past({ stats }) {
  return html`<${Table}
    caption=${t("past")}
    columns=${columns(stats.active)}
    rows=${stats.history ?? []}
    keyOf=${(row) => row.compression_id}
    empty=${t("none")}
  />`;
}

const moment = (at) => (typeof at === "number" ? at * 1000 : at);

const saved = (row) => (row.original_tokens ? 100 * (1 - row.compressed_tokens / row.original_tokens) : 0);

const columns = (active) => [
  { key: "at", title: t("at"), cell: (row) => when(moment(row.at)) },
  { key: "how", title: t("how"), cell: (row) => t(row.automatic ? "automatic" : "by_hand") },
  { key: "before", title: t("before"), align: "right", cell: (row) => tokens(row.original_tokens) },
  { key: "after", title: t("after"), align: "right", cell: (row) => tokens(row.compressed_tokens) },
  { key: "saved", title: t("saved"), align: "right", cell: (row) => percent(saved(row)) },
  { key: "by", title: t("summary"), cell: (row) => t(row.summary_by === "provider" ? "by_provider" : "by_heuristic") },
  { key: "state", title: t("state"), cell: (row) => state(row, active) },
];

function state(row, active) {
  if (row.undone) return html`<span class="badge">${t("state_undone")}</span>`;
  if (row.compression_id === active) return html`<span class="badge ok">${t("state_active")}</span>`;
  return html`<span class="badge">${t("state_replaced")}</span>`;
}
