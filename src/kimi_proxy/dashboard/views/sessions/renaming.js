// Gives a session a title.
import { patch } from "../../lib/api.js";
import { html, useState } from "../../lib/html.js";
import { phrases } from "../../lib/i18n.js";
import { meet } from "../../state/traffic.js";
import { Dialog } from "../../parts/dialog.js";
import { Failure } from "../../parts/notice.js";
import words from "../../words/sessions.js";

const t = phrases(words);
const MAX_CHARS = 200;

export function Renaming({ session, onClose, onDone }) {
  const [title, setTitle] = useState(session.title);
  const [error, setError] = useState(null);
  const submit = (event) => {
    event.preventDefault();
    patch(`/api/sessions/${encodeURIComponent(session.id)}`, { title }).then((renamed) => {
      meet(renamed);
      onDone();
    }, setError);
  };
  return html`<${Dialog} title=${t("rename")} onClose=${onClose}>
    <form class="door" onSubmit=${submit}>
      <label>
        ${t("new_title")}
        <input value=${title} maxlength=${MAX_CHARS} autofocus onInput=${(event) => setTitle(event.currentTarget.value)} />
      </label>
      ${error && html`<${Failure} error=${error} />`}
      <div class="dialog-actions">
        <button type="button" onClick=${onClose}>${t("cancel")}</button>
        <button type="submit" class="main">${t("save")}</button>
      </div>
    </form>
  <//>`;
}
