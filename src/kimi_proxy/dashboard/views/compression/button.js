// The button, and why it can or can't be pressed.
import { percent, share as shareText } from "../../lib/format.js";
import { html } from "../../lib/html.js";
import { phrases } from "../../lib/i18n.js";
import { Card } from "../../parts/card.js";
import { Gauge } from "../../parts/gauge.js";
import { Icon } from "../../parts/icon.js";
import words from "../../words/compression.js";

const t = phrases(words);
export const THRESHOLD = 85; // unless the server says otherwise

export function Button({ newest, isAbsent, active, threshold, onOpen, onUndo, isBusy }) {
  const share = newest?.percent ?? null;
  const reason = whyNot(newest, isAbsent, threshold);
  return html`<${Card} title=${t("title")} note=${t("note")}>
    <div class="compression-top">
      <${Gauge} share=${share} label=${t("window")} text=${shareText(share)} />
      <div class="compression-do">
        <p id="compression-why" class=${reason ? "soft" : "wrong"}>${reason || t("ready", { share: shareText(share) })}</p>
        <div class="row-actions">
          <button
            type="button"
            class="red big"
            disabled=${Boolean(reason)}
            aria-describedby="compression-why"
            onClick=${() => onOpen("compress")}
          >
            <${Icon} name="compress" />${t("compress")}
          </button>
          <button type="button" disabled=${isAbsent || !newest} onClick=${() => onOpen("simulate")}>
            <${Icon} name="eye" />${t("simulate")}
          </button>
          ${active && html`<button type="button" disabled=${isBusy} onClick=${onUndo}><${Icon} name="undo" />${t("undo")}</button>`}
        </div>
        ${active && html`<p class="soft">${t("active")}</p>`}
      </div>
    </div>
  <//>`;
}

/** The reason why the button can't be pressed, or nothing. */
function whyNot(newest, isAbsent, threshold) {
  if (isAbsent) return t("absent");
  if (!newest) return t("no_request");
  if (newest.percent === null) return t("window_unknown");
  const share = shareText(newest.percent);
  return newest.percent < threshold ? t("below", { share, threshold: percent(threshold) }) : "";
}
