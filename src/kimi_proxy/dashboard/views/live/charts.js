// Tokens and cost over time, and what the same requests would have cost without us.
import { tokens, usd } from "../../lib/format.js";
import { html, useMemo } from "../../lib/html.js";
import { language, phrases } from "../../lib/i18n.js";
import { Card } from "../../parts/card.js";
import { Chart } from "../../parts/chart.js";
import { Empty } from "../../parts/notice.js";
import words from "../../words/live.js";

const t = phrases(words);

export function Charts({ history }) {
  const newest = history.at(-1);
  const running = history.filter(({ outcome }) => outcome === "running").length; // older ones may end last
  const key = `${history.length} ${newest?.id} ${newest?.outcome} ${running} ${language.get()}`;
  const times = useMemo(() => history.map((metric) => Date.parse(metric.at)), [key]);
  const read = useMemo(() => tokenLines(history), [key]);
  const paid = useMemo(() => costLines(history), [key]);
  return html`<div class="live-row two">
    <${Card} title=${t("tokens_over_time")} name="live-chart">
      ${
        times.length
          ? html`<${Chart} label=${t("tokens_over_time")} times=${times} series=${read} format=${tokens} />`
          : html`<${Empty}>${t("waiting")}<//>`
      }
    <//>
    <${Card} title=${t("cost_over_time")} name="live-chart">
      ${
        paid
          ? html`<${Chart} label=${t("cost_over_time")} times=${times} series=${paid} format=${usd} />`
          : html`<${Empty}>${t(times.length ? "no_price" : "waiting")}<//>`
      }
    <//>
  </div>`;
}

function tokenLines(history) {
  return [
    {
      label: t("real"),
      colour: "chat",
      values: history.map((metric) => (metric.counted_by === "provider" ? metric.tokens : null)),
    },
    { label: t("estimate"), colour: "soft", isDashed: true, values: history.map((metric) => metric.tokens_estimated) },
  ];
}

/** Sums over the requests that are shown; null where no price is known. */
function costLines(history) {
  const real = sums(history.map((metric) => metric.cost_usd));
  if (!real.some((sum) => sum !== null)) return null;
  const before = history.some((metric) => typeof metric.cost_before_usd === "number")
    ? sums(history.map((metric) => metric.cost_before_usd ?? metric.cost_usd))
    : null;
  return [
    { label: t("real"), colour: "chat", values: real },
    ...(before ? [{ label: t("without"), colour: "tools", isDashed: true, values: before }] : []),
  ];
}

function sums(values) {
  let sum = null;
  return values.map((value) => {
    if (typeof value === "number") sum = (sum ?? 0) + value;
    return sum;
  });
}
