// Requests as they stream, the newest first.
import { pin, titleOf } from "../../state/focus.js";
import { count, duration, share, tokens, usd, when } from "../../lib/format.js";
import { html, useState } from "../../lib/html.js";
import { phrases } from "../../lib/i18n.js";
import { known } from "../../state/traffic.js";
import { outcomeOf } from "../../codes/outcome.js";
import { Card } from "../../parts/card.js";
import { Explained } from "../../parts/explained.js";
import { levelOf } from "../../parts/gauge.js";
import { Table } from "../../parts/table.js";
import words from "../../words/live.js";

const t = phrases(words);
const SHOWN = 40;

export function Requests({ id }) {
  const [isMine, setMine] = useState(false);
  const [held, hold] = useState(null); // ids that stay in place while the pointer is on them
  const newest = (isMine ? known.requests.filter((metric) => metric.session_id === id) : known.requests).slice(-SHOWN);
  const rows = held ? known.requests.filter((metric) => held.has(metric.id)) : newest;
  const aside = html`<span class="live-filter">
    ${held && html`<span class="badge info">${t("held")}</span>`}
    <label><input type="checkbox" checked=${isMine} onChange=${() => setMine(!isMine)} /> ${t("only_session")}</label>
  </span>`;
  return html`<${Card} title=${t("requests")} name="live-requests" aside=${aside}>
    <div onMouseEnter=${() => hold(new Set(newest.map((metric) => metric.id)))} onMouseLeave=${() => hold(null)}>
      <${Table}
        caption=${t("requests")}
        columns=${columns()}
        rows=${[...rows].reverse()}
        keyOf=${(metric) => metric.id}
        empty=${t("waiting")}
        maxHeight="max(26rem, calc(100vh - 46rem))"
      />
    </div>
  <//>`;
}

/** The head of a column with what its numbers mean: once, not in every row. */
const explained = (key) => html`<${Explained} text=${t(`${key}_what`)}>${t(key)}<//>`;

const columns = () => [
  { key: "at", title: t("at"), cell: (metric) => when(metric.at) },
  { key: "session", title: explained("session"), label: t("session"), wide: true, cell: sessionCell },
  { key: "model", title: t("model"), cell: (metric) => html`<span class="soft">${metric.model}</span>` },
  { key: "tokens", title: explained("tokens"), label: t("tokens"), align: "right", cell: tokensCell },
  { key: "percent", title: explained("of_window"), label: t("of_window"), align: "right", cell: shareCell },
  {
    key: "saved",
    title: explained("saved"), label: t("saved"),
    align: "right",
    cell: (metric) => (metric.tokens_saved ? tokens(metric.tokens_saved) : ""),
  },
  {
    key: "cost",
    title: explained("cost"), label: t("cost"),
    align: "right",
    cell: (metric) => (metric.cost_usd === null ? "" : usd(metric.cost_usd)),
  },
  { key: "time", title: t("duration"), align: "right", cell: (metric) => duration(metric.duration_ms) },
  { key: "outcome", title: t("outcome"), cell: outcomeCell },
];

function sessionCell(metric) {
  const session = known.sessions.get(metric.session_id);
  return html`<span class="live-session">
    <button type="button" class="link" onClick=${() => pin(metric.session_id)}>${titleOf(session) || metric.session_id}</button>
    ${metric.memory_tokens > 0 && html`<${Memory} tokens=${metric.memory_tokens} />`}
  </span>`;
}

const Memory = ({ tokens: n }) =>
  html`<${Explained} text=${t("mcp_what", { n: count(n) })}><span class="badge memory">MCP</span><//>`;

function tokensCell(metric) {
  const isReal = metric.counted_by === "provider";
  if (isReal) return count(metric.tokens);
  return html`<span class="soft"><span aria-hidden="true">≈ </span>${count(metric.tokens)}<span class="unseen"> ${t("by_estimate")}</span></span>`;
}

function shareCell(metric) {
  if (metric.percent === null) return "";
  const level = levelOf(metric.percent);
  return level === "ok" ? share(metric.percent) : html`<span class="badge ${level}">${share(metric.percent)}</span>`;
}

function outcomeCell(metric) {
  const { level, text } = outcomeOf(metric);
  return html`<span class="badge ${level} ${metric.outcome}">${text}</span>`;
}
