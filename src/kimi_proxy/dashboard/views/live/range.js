// What was saved between two days, by model and by project.
import { count, tokens, usd } from "../../lib/format.js";
import { html } from "../../lib/html.js";
import { phrases } from "../../lib/i18n.js";
import { Card } from "../../parts/card.js";
import { Answered } from "../../parts/notice.js";
import { Table } from "../../parts/table.js";
import words from "../../words/live.js";
import { savedIn } from "./money.js";

const t = phrases(words);

/** `days` is `{since, until}` as the viewer chose them, empty for this month. */
export function Range({ answer, days, onChoose, isObserving }) {
  const shown = answer.value?.range;
  const day = (name) => html`<label>
    ${t(name)}
    <input
      type="date"
      value=${days[name] || shown?.[name] || ""}
      max=${name === "since" ? days.until || undefined : undefined}
      min=${name === "until" ? days.since || shown?.since : undefined}
      onChange=${(event) => onChoose({ ...days, [name]: event.currentTarget.value })}
    />
  </label>`;
  return html`<${Card} title=${t("range")} name="live-range" aside=${html`<span class="range-days">${day("since")}${day("until")}</span>`}>
    <${Answered} answer=${answer}>
      ${({ range }) => html`<div class="live-row two">
        <${Sums} name="model" rows=${range.models} isObserving=${isObserving} />
        <${Sums} name="directory" rows=${range.projects} isObserving=${isObserving} />
      </div>`}
    <//>
  <//>`;
}

function Sums({ name, rows, isObserving }) {
  const columns = [
    { key: name, title: t(`by_${name}`), wide: true, cell: (row) => row[name] || t("no_directory") },
    { key: "requests", title: t("cache_times"), align: "right", cell: (row) => count(row.requests) },
    { key: "read", title: t("tokens"), align: "right", cell: (row) => tokens(row.tokens_after) },
    { key: "cost", title: t("cost"), align: "right", cell: (row) => usd(row.cost_usd) },
    { key: "saved", title: t(isObserving ? "would_save" : "saved"), align: "right", cell: (row) => savedCell(row, isObserving) },
  ];
  return html`<${Table}
    caption=${t(`by_${name}`)}
    columns=${columns}
    rows=${rows}
    keyOf=${(row) => row[name]}
    empty=${t("no_requests_then")}
    maxHeight="20rem"
  />`;
}

function savedCell(row, isObserving) {
  const { amount, share } = savedIn(row, isObserving);
  return html`<span>${amount} <span class="soft">${share}</span></span>`;
}
