// Tokens and cost over time, estimated and real.
import { useAnswer } from "../../lib/api.js";
import { tokens, usd } from "../../lib/format.js";
import { html, useMemo } from "../../lib/html.js";
import { language, phrases } from "../../lib/i18n.js";
import { Card } from "../../parts/card.js";
import { Chart } from "../../parts/chart.js";
import { Empty } from "../../parts/notice.js";
import words from "../../words/live.js";

const t = phrases(words);
const MILLION = 1e6;

export function Charts({ history }) {
  const models = useAnswer("/api/models").value?.models ?? [];
  const newest = history.at(-1);
  const running = history.filter(({ outcome }) => outcome === "running").length; // older ones may end last
  const key = `${history.length} ${newest?.id} ${newest?.outcome} ${running} ${language.get()}`;
  const times = useMemo(() => history.map((metric) => Date.parse(metric.at)), [key]);
  const read = useMemo(() => tokenLines(history), [key]);
  const paid = useMemo(() => costLines(history, models), [key, models]);
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
function costLines(history, models) {
  const prices = new Map(
    models.flatMap((model) => [
      [model.id, model],
      [model.model, model],
    ]),
  );
  const real = sums(history.map((metric) => metric.cost_usd));
  const guessed = sums(history.map((metric) => guess(metric, prices.get(metric.model))));
  const before = history.some((metric) => typeof metric.cost_before_usd === "number")
    ? sums(history.map((metric) => metric.cost_before_usd ?? metric.cost_usd))
    : null;
  if (!real.concat(guessed).some((sum) => sum !== null)) return null;
  return [
    { label: t("real"), colour: "chat", values: real },
    { label: t("estimate"), colour: "soft", isDashed: true, values: guessed },
    ...(before ? [{ label: t("without"), colour: "tools", isDashed: true, values: before }] : []),
  ];
}

/** At the full price of input: it is not known beforehand what the provider's cache holds. */
function guess(metric, price) {
  if (!price?.input_usd_per_million) return null;
  const written = (metric.output_tokens ?? 0) * price.output_usd_per_million;
  return (metric.tokens_estimated * price.input_usd_per_million + written) / MILLION;
}

function sums(values) {
  let sum = null;
  return values.map((value) => {
    if (typeof value === "number") sum = (sum ?? 0) + value;
    return sum;
  });
}
