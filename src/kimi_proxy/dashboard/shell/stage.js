// Where a view is shown: loaded when it is opened, and fenced, so that its fault is not everybody's.
// A module that failed to load stays failed for as long as the page lives (browsers remember it), so a view that could
// not be loaded is retried by reloading the page, once the server answers.
import { html, useEffect, useErrorBoundary, useState } from "../lib/html.js";
import { phrases } from "../lib/i18n.js";
import { useKnown } from "../state/traffic.js";
import words from "../words/shell.js";

const t = phrases(words);
const loaded = new Map();

const reload = () => fetch("/health").then(() => location.reload(), () => {});

/** A server that is away has no files either. */
function Absent() {
  const { state } = useKnown();
  return html`<div class="failure" role="alert">
    <span>${t(state === "away" ? "unreachable" : "view_absent")}</span>
    <button type="button" class="quiet" onClick=${reload}>${t("again")}</button>
  </div>`;
}

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
  if (isAbsent) return html`<${Absent} />`;
  return View ? html`<${View} />` : html`<p class="empty" role="status">${t("loading")}</p>`;
}
