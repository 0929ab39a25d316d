// An alert with what to do about it.
import { html } from "../lib/html.js";
import { phrases } from "../lib/i18n.js";
import words from "../words/shell.js";
import { Icon } from "./icon.js";

const t = phrases(words);

/** `level`: ok, info, caution, warning or critical. `children` are what to do. */
export function Banner({ level, title, children, onClose }) {
  const role = level === "critical" || level === "warning" ? "alert" : "status";
  return html`<div class="banner ${level}" role=${role}>
    <${Icon} name=${level === "ok" ? "check" : level === "info" ? "info" : "alert"} />
    <div class="banner-text"><strong>${title}</strong>${children && html`<span> ${children}</span>`}</div>
    ${
      onClose &&
      html`<button type="button" class="icon-button" aria-label=${t("close")} onClick=${onClose}>
      <${Icon} name="close" />
    </button>`
    }
  </div>`;
}
