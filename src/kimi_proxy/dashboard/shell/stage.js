// Where a view is shown: loaded when it is opened, and fenced, so that its fault is not everybody's.
import { html, useEffect, useErrorBoundary, useState } from "../html.js";
import { phrases } from "../i18n.js";
import { Empty } from "../parts/notice.js";
import words from "../words/shell.js";

const t = phrases(words);
const loaded = new Map();

export function Stage({ view }) {
  const [View, setView] = useState(() => loaded.get(view.name));
  const [isAbsent, setAbsent] = useState(false);
  const [error, reset] = useErrorBoundary((fault) => console.error(fault));
  useEffect(() => {
    if (View) return;
    view.load().then(
      (module) => {
        loaded.set(view.name, module.View);
        setView(() => module.View);
      },
      () => setAbsent(true),
    );
  }, []);
  if (error) {
    return html`<div class="failure" role="alert">
      <span>${t("view_failed", { message: error.message })}</span>
      <button type="button" class="quiet" onClick=${reset}>${t("again")}</button>
    </div>`;
  }
  if (isAbsent) return html`<${Empty}>${t("view_absent")}<//>`;
  return View ? html`<${View} />` : html`<p class="empty" role="status">${t("loading")}</p>`;
}
