// The provider's prompt cache: what was read from it, why it was missed, and how long it still lives.
import { count, share, tokens, usd } from "../../lib/format.js";
import { html, useEffect, useState } from "../../lib/html.js";
import { phrases } from "../../lib/i18n.js";
import { Card } from "../../parts/card.js";
import { Empty } from "../../parts/notice.js";
import { Table } from "../../parts/table.js";
import words from "../../words/live.js";

const t = phrases(words);
const TICK_MS = 1000;

export function Cache({ history }) {
  const counted = history.filter((metric) => metric.input_tokens);
  const input = sum(counted, "input_tokens");
  const read = sum(counted, "cached_tokens");
  const misses = byCause(counted.filter((metric) => metric.cache_miss));
  return html`<${Card} title=${t("cache")} aside=${html`<${Countdown} newest=${history.at(-1)} />`}>
    ${
      input === 0
        ? html`<${Empty}>${t("cache_unknown")}<//>`
        : html`<p>${t("cache_read", { share: share((100 * read) / input), read: tokens(read), input: tokens(input) })}</p>`
    }
    ${
      input > 0 &&
      html`<${Table}
        caption=${t("cache_misses")}
        columns=${columns()}
        rows=${misses}
        keyOf=${(one) => one.cause}
        empty=${t("cache_no_misses")}
      />`
    }
  <//>`;
}

const columns = () => [
  { key: "cause", title: t("cache_cause"), wide: true, cell: causeCell },
  { key: "times", title: t("cache_times"), align: "right", cell: (one) => count(one.times) },
  { key: "tokens", title: t("cache_tokens"), align: "right", cell: (one) => tokens(one.tokens) },
  { key: "usd", title: t("cache_usd"), align: "right", cell: (one) => (one.usd === null ? "" : usd(one.usd)) },
];

const causeCell = ({ cause, detail }) =>
  html`${t(`miss_${cause}`)}${detail && html` <span class="soft">${detail}</span>`}`;

/** Seconds until the provider forgets the newest request, if it keeps it for a known time. */
function Countdown({ newest }) {
  const [now, tick] = useState(Date.now());
  useEffect(() => {
    const timer = setInterval(() => tick(Date.now()), TICK_MS);
    return () => clearInterval(timer);
  }, []);
  if (!newest?.cache_life_s) return null;
  const left = Math.round((Date.parse(newest.at) - now) / 1000 + newest.cache_life_s);
  return html`<span class="number soft">${left > 0 ? t("cache_left", { left: duration(left) }) : t("cache_cold")}</span>`;
}

const duration = (seconds) =>
  seconds >= 3600
    ? `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`
    : `${Math.floor(seconds / 60)}:${String(seconds % 60).padStart(2, "0")}`;

const sum = (metrics, name) => metrics.reduce((all, metric) => all + (metric[name] ?? 0), 0);

/** The dearest cause first; the newest detail of each is shown. */
function byCause(missed) {
  const causes = new Map();
  for (const { cache_miss: cause, cache_missed_tokens: lost, cache_missed_usd: cost, cache_miss_detail: detail } of missed) {
    const before = causes.get(cause) ?? { cause, times: 0, tokens: 0, usd: null, detail: "" };
    const paid = typeof cost === "number" ? (before.usd ?? 0) + cost : before.usd;
    const shown = detail || before.detail;
    causes.set(cause, { cause, times: before.times + 1, tokens: before.tokens + lost, usd: paid, detail: shown });
  }
  return [...causes.values()].sort((a, b) => b.tokens - a.tokens);
}
