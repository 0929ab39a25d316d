// How full the window is.
import { share as shareText, tokens } from "../../lib/format.js";
import { html } from "../../lib/html.js";
import { phrases } from "../../lib/i18n.js";
import { Card } from "../../parts/card.js";
import { Explained } from "../../parts/explained.js";
import { Gauge } from "../../parts/gauge.js";
import words from "../../words/live.js";
import { CompressNow } from "./compress.js";
import { Quota } from "./quota.js";

const t = phrases(words);

export function Window({ id, newest, history, threshold }) {
  const share = newest?.percent ?? null;
  const used = tokens(newest?.tokens ?? 0);
  const size = newest?.max_context ? tokens(newest.max_context) : null;
  const text = size ? t("window_of", { used, size }) : t("window_unknown", { used });
  return html`<${Card} title=${t("window")} name="live-window">
    <${Gauge} share=${share} label=${t("window")} text="${shareText(share)}, ${text}" />
    <p class="live-under number">${text}${size && html` · ${t("room", { room: tokens(room(newest)) })}`}</p>
    ${newest && html`<p class="live-small">${newest.model} · <${CountedBy} metric=${newest} /></p>`}
    <${CompressNow} id=${id} newest=${newest} threshold=${threshold} />
    <${Quota} history=${history} />
    ${newest && !size && html`<p class="live-small">${t("window_hint")}</p>`}
  <//>`;
}

function CountedBy({ metric }) {
  const key = metric.counted_by === "provider" ? "by_provider" : "by_estimate";
  return html`<${Explained} text=${t(`${key}_what`)}>${t(key)}<//>`;
}

const room = (metric) => Math.max(0, metric.max_context - metric.tokens);
