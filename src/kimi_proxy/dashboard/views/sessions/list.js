// The list of sessions.
import { focus, pin, pinned, titleOf } from "../../focus.js";
import { count, tokens, usd, when } from "../../format.js";
import { html } from "../../html.js";
import { phrases } from "../../i18n.js";
import { Icon } from "../../parts/icon.js";
import { Table } from "../../parts/table.js";
import { useSignal } from "../../signal.js";
import words from "../../words/sessions.js";

const t = phrases(words);

export function List({ sessions, chosen, onChoose, onRename, onDelete, asked }) {
  const kept = useSignal(pinned);
  const shown = focus();
  const columns = [
    { key: "choose", title: html`<span class="unseen">${t("choose")}</span>`, cell: (session) => chooser(session, chosen, onChoose) },
    { key: "title", title: t("session"), wide: true, cell: (session) => name(session, shown) },
    { key: "model", title: t("model"), cell: (session) => html`<span class="soft">${session.model}</span>` },
    { key: "used", title: t("last_used"), cell: (session) => when(session.last_used_at) },
    { key: "requests", title: t("requests"), align: "right", cell: (session) => count(session.requests) },
    { key: "read", title: t("read"), align: "right", cell: (session) => tokens(session.input_tokens) },
    { key: "saved", title: t("saved"), align: "right", cell: (session) => tokens(session.net_saved_tokens ?? session.tokens_saved) },
    { key: "cost", title: t("cost"), align: "right", cell: (session) => usd(session.cost_usd ?? NaN) },
    { key: "do", title: html`<span class="unseen">${t("actions")}</span>`, cell: (session) => actions(session, kept, onRename, onDelete) },
  ];
  return html`<${Table}
    caption=${t("title")}
    columns=${columns}
    rows=${sessions}
    keyOf=${(session) => session.id}
    rowClass=${(session) => (session.id === shown ? "chosen" : "")}
    empty=${t(asked ? "not_found" : "empty")}
  />`;
}

function chooser(session, chosen, onChoose) {
  const label = t("choose_one", { title: titleOf(session) });
  return html`<input type="checkbox" aria-label=${label} checked=${chosen.includes(session.id)} onChange=${() => onChoose(session.id)} />`;
}

function name(session, shown) {
  const under = session.title && session.name ? session.name : session.id;
  return html`<div class="sessions-name">
    <span>${titleOf(session)} ${session.id === shown && html`<span class="badge info">${t("looked_at")}</span>`}</span>
    <span class="soft mono">${under}</span>
  </div>`;
}

function actions(session, kept, onRename, onDelete) {
  const isPinned = session.id === kept;
  const title = titleOf(session);
  return html`<div class="sessions-actions">
    <${Action} icon="pin" label=${t(isPinned ? "unpin" : "pin", { title })} isOn=${isPinned} onClick=${() => pin(isPinned ? "" : session.id)} />
    <${Action} icon="pencil" label=${t("rename_one", { title })} onClick=${() => onRename(session)} />
    <${Action} icon="trash" label=${t("delete_one", { title })} onClick=${() => onDelete(session)} />
  </div>`;
}

function Action({ icon, label, isOn, onClick }) {
  const pressed = isOn === undefined ? undefined : String(isOn);
  return html`<button type="button" class="icon-button" aria-label=${label} title=${label} aria-pressed=${pressed} onClick=${onClick}>
    <${Icon} name=${icon} />
  </button>`;
}
