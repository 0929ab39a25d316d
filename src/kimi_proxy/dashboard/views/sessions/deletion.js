// Deletes sessions, once it was said twice.
import { remove } from "../../lib/api.js";
import { pin, pinned, titleOf } from "../../state/focus.js";
import { html, useState } from "../../lib/html.js";
import { phrases } from "../../lib/i18n.js";
import { forget } from "../../state/traffic.js";
import { Dialog } from "../../parts/dialog.js";
import { Failure } from "../../parts/notice.js";
import words from "../../words/sessions.js";

const t = phrases(words);
const NAMED = 5;
const RUNNING_MS = 15 * 60_000; // a conversation that was used within this time probably goes on

const isRunning = ({ last_used_at: at }) => Date.now() - Date.parse(at) < RUNNING_MS;

export function Deletion({ sessions, onClose, onDone }) {
  const [error, setError] = useState(null);
  const ids = sessions.map(({ id }) => id);
  const running = sessions.filter(isRunning);
  const confirm = () =>
    remove("/api/sessions", { ids }).then(() => {
      ids.forEach(forget);
      if (ids.includes(pinned.get())) pin("");
      onDone();
    }, setError);
  const actions = html`
    <button type="button" autofocus onClick=${onClose}>${t("cancel")}</button>
    <button type="button" class="red" onClick=${confirm}>${t("delete_chosen", { n: ids.length })}</button>
  `;
  return html`<${Dialog} title=${t("delete_title", { n: ids.length })} onClose=${onClose} actions=${actions}>
    <ul class="sessions-listed">
      ${sessions.slice(0, NAMED).map((session) => html`<li key=${session.id}>${titleOf(session)}</li>`)}
      ${sessions.length > NAMED && html`<li class="soft">${t("and_more", { n: sessions.length - NAMED })}</li>`}
    </ul>
    <p class="soft">${t("delete_text")}</p>
    ${running.length > 0 &&
    html`<p class="warning" role="note">
      ${t("delete_running", { n: running.length, titles: running.slice(0, NAMED).map(titleOf).join(", ") })}
    </p>`}
    ${error && html`<${Failure} error=${error} />`}
  <//>`;
}
