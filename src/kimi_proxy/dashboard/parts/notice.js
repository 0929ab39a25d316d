// What stands where there is nothing to show: loading, absent, failed, empty.
import { detailOf, errorText } from "../codes/errors.js";
import { html } from "../lib/html.js";
import { phrases } from "../lib/i18n.js";
import words from "../words/shell.js";
import { Fold } from "./fold.js";
import { Icon } from "./icon.js";

const t = phrases(words);

export function Empty({ children }) {
  return html`<p class="empty">${children ?? t("nothing")}</p>`;
}

/** `answer` is what `useAnswer` gave; its value goes to `children`, a function; `nothing` is said where there is none. */
export function Answered({ answer, nothing, children }) {
  const { value, error, isLoading, again } = answer;
  if (error) return html`<${Failure} error=${error} nothing=${nothing} again=${again} />`;
  if (value === null) return isLoading ? html`<p class="empty" role="status">${t("loading")}</p>` : null;
  return children(value);
}

/** The server's own words, which are English. */
export function Detail({ text }) {
  return text ? html`<${Fold} title=${t("server_said")}><span lang="en">${text}</span><//>` : null;
}

export function Failure({ error, nothing, again }) {
  if (error.isAbsent) return html`<p class="empty">${t("absent")}</p>`;
  if (error.isNothing && nothing) return html`<p class="empty">${nothing}</p>`;
  return html`<div class="failure" role="alert">
    <${Icon} name="alert" />
    <div>
      <span>${error.status ? t("failed", { message: errorText(error) }) : t("unreachable")}</span>
      <${Detail} text=${detailOf(error)} />
    </div>
    ${again && html`<button type="button" class="quiet" onClick=${again}>${t("again")}</button>`}
  </div>`;
}
