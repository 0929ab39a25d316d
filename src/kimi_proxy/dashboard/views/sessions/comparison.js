// Two sessions side by side.
import { useAnswer } from "../../lib/api.js";
import { composition, PARTS } from "../../codes/composition.js";
import { titleOf } from "../../state/focus.js";
import { count, duration, percent, tokens, usd } from "../../lib/format.js";
import { html } from "../../lib/html.js";
import { phrases } from "../../lib/i18n.js";
import { Bar } from "../../parts/bar.js";
import { Dialog } from "../../parts/dialog.js";
import words from "../../words/sessions.js";

const t = phrases(words);
const LOOKED_AT = 200;
const path = ({ id }) => `/api/sessions/${encodeURIComponent(id)}/metrics?limit=${LOOKED_AT}`;

export function Comparison({ sessions, onClose }) {
  const answers = [useAnswer(path(sessions[0])), useAnswer(path(sessions[1]))];
  const both = sessions.map((session, at) => facts(session, answers[at].value?.metrics ?? []));
  return html`<${Dialog} wide title=${t("comparison")} onClose=${onClose}>
    <table class="table comparison">
      <thead>
        <tr>
          <th scope="col"><span class="unseen">${t("fact")}</span></th>
          ${sessions.map((session) => html`<th key=${session.id} scope="col" class="right">${titleOf(session)}</th>`)}
          <th scope="col" class="right">${t("difference")}</th>
        </tr>
      </thead>
      <tbody>
        ${FACTS.map(
          ([name, format]) =>
            html`<${Row} key=${name} name=${name} format=${format} values=${both.map((fact) => fact[name])} />`,
        )}
      </tbody>
    </table>
    ${sessions.map(
      (session, at) =>
        html`<${Filled} key=${session.id} title=${titleOf(session)} metric=${answers[at].value?.metrics.at(-1)} />`,
    )}
  <//>`;
}

const share = (value) => percent(value, 1);
const FACTS = [
  ["requests", count],
  ["window", share],
  ["read", tokens],
  ["cached", share],
  ["written", tokens],
  ["saved", tokens],
  ["cost", usd],
  ["cost_each", usd],
  ["took", duration],
  ["failed", count],
];

function facts(session, metrics) {
  const took = metrics.map((metric) => metric.duration_ms).filter((ms) => typeof ms === "number");
  return {
    requests: session.requests,
    window: metrics.at(-1)?.percent,
    read: session.input_tokens,
    cached: session.input_tokens ? (100 * session.cached_tokens) / session.input_tokens : undefined,
    written: session.output_tokens,
    saved: session.net_saved_tokens ?? session.tokens_saved,
    cost: session.cost_usd,
    cost_each: session.requests && session.cost_usd !== null ? session.cost_usd / session.requests : undefined,
    took: took.length ? took.reduce((sum, ms) => sum + ms, 0) / took.length : undefined,
    failed: metrics.filter((metric) => metric.status >= 400).length,
  };
}

function Row({ name, format, values: [left, right] }) {
  const isKnown = typeof left === "number" && typeof right === "number";
  const difference = isKnown ? right - left : NaN;
  const sign = difference > 0 ? "+" : difference < 0 ? "−" : "";
  return html`<tr>
    <th scope="row">${t(`fact_${name}`)}</th>
    <td class="right">${format(left ?? NaN)}</td>
    <td class="right">${format(right ?? NaN)}</td>
    <td class="right soft">${isKnown ? sign + format(Math.abs(difference)) : ""}</td>
  </tr>`;
}

function Filled({ title, metric }) {
  const made = composition(metric);
  if (!made) return null;
  const parts = PARTS.map((name) => ({ name, label: t(name), value: made[name] }));
  const whole = metric.max_context ?? undefined;
  return html`<div><p class="soft">${title}</p><${Bar} label=${title} parts=${parts} whole=${whole} /></div>`;
}
