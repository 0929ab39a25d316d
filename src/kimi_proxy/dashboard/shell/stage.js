// Where a view is shown: loaded when it is opened, and fenced, so that its fault is not everybody's.
import { html, useEffect, useErrorBoundary, useState } from "../html.js";
import { phrases } from "../i18n.js";
import { useKnown } from "../known.js";
import words from "../words/shell.js";

const t = phrases(words);
const loaded = new Map();

/** A server that is away has no files either. */
function Absent({ again }) {
  const { state } = useKnown();
  return html`<div class="failure" role="alert">
    <span>${t(state === "away" ? "unreachable" : "view_absent")}</span>
    <button type="button" class="quiet" onClick=${again}>${t("again")}</button>
  </div>`;
}

export function Stage({ view }) {
  const [View, setView] = useState(() => loaded.get(view.name));
  const [isAbsent, setAbsent] = useState(false);
  const [error, reset] = useErrorBoundary((fault) => console.error(fault));
  const load = () =>
    view.load().then(
      (module) => {
        loaded.set(view.name, module.View);
        setView(() => module.View);
        setAbsent(false);
      },
      () => setAbsent(true),
    );
  useEffect(() => {
    if (!View) load();
  }, []);
  if (error) {
    return html`<div class="failure" role="alert">
      <span>${t("view_failed", { message: error.message })}</span>
      <button type="button" class="quiet" onClick=${reset}>${t("again")}</button>
    </div>`;
  }
  if (isAbsent) return html`<${Absent} again=${load} />`;
  return View ? html`<${View} />` : html`<p class="empty" role="status">${t("loading")}</p>`;
}
