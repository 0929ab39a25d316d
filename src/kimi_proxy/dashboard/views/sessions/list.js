// The list of sessions.
import { focus, pin, pinned, titleOf } from "../../state/focus.js";
import { count, date, tokens, usd } from "../../lib/format.js";
import { html } from "../../lib/html.js";
import { phrases } from "../../lib/i18n.js";
import { known } from "../../state/traffic.js";
import { Explained } from "../../parts/explained.js";
import { IconButton } from "../../parts/icon_button.js";
import { Table } from "../../parts/table.js";
import { useSignal } from "../../lib/signal.js";
import words from "../../words/sessions.js";

const t = phrases(words);

export function List({ sessions, chosen, onChoose, onRename, onDelete, asked }) {
  const kept = useSignal(pinned);
  const shown = focus();
  const columns = [
    { key: "choose", title: unseen("choose"), cell: (session) => chooser(session, chosen, onChoose) },
    { key: "title", title: t("session"), wide: true, cell: (session) => name(session, shown) },
    { key: "model", title: t("model"), cell: (session) => html`<span class="soft">${session.model}</span>` },
    { key: "used", title: t("last_used"), cell: (session) => date(session.last_used_at) },
    ...NUMBERS.map(([key, cell]) => ({ key, title: t(key), align: "right", cell })),
    { key: "do", title: unseen("actions"), cell: (session) => actions(session, kept, onRename, onDelete) },
  ];
  return html`<${Table}
    caption=${t("title")}
    columns=${columns}
    rows=${sessions}
    keyOf=${(session) => session.id}
    rowClass=${(session) => (session.id === shown ? "chosen" : "")}
    sums=${asked ? null : sumsOf(known.totals)}
    empty=${t(asked ? "not_found" : "empty")}
  />`;
}

const NUMBERS = [
  ["requests", (session) => count(session.requests)],
  ["read", (session) => tokens(session.input_tokens)],
  ["saved", (session) => tokens(session.net_saved_tokens ?? session.tokens_saved)],
  ["saved_usd", savedCell],
  ["cost", (session) => usd(session.cost_usd)],
];

/** Money saved; where a session cost more than it saved, what that was spent on. */
function savedCell(session) {
  const { net_saved_usd: money, net_saved_tokens: net, losses } = session;
  if (!((money ?? net) < 0)) return usd(money);
  const spent = Object.entries(losses ?? {}).sort(([, a], [, b]) => b - a);
  const why = spent.map(([name, n]) => t(`loss_${name}`, { tokens: tokens(n) })).join(" ");
  return html`<${Explained} text=${why || t("loss_unknown")}>${usd(money)}<//>`;
}

/** Of all sessions, not only of those that are listed. */
function sumsOf(totals) {
  if (!totals || totals.sessions < 2) return null;
  const sums = Object.fromEntries(NUMBERS.map(([key, cell]) => [key, cell(totals)]));
  return { ...sums, title: t("sum", { n: totals.sessions }) };
}

const unseen = (key) => html`<span class="unseen">${t(key)}</span>`;

function chooser(session, chosen, onChoose) {
  const label = t("choose_one", { title: titleOf(session) });
  const isChosen = chosen.includes(session.id);
  return html`<input type="checkbox" aria-label=${label} checked=${isChosen} onChange=${() => onChoose(session.id)} />`;
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
    <${IconButton}
      icon="pin"
      label=${t(isPinned ? "unpin" : "pin", { title })}
      isOn=${isPinned}
      onClick=${() => pin(isPinned ? "" : session.id)}
    />
    <${IconButton} icon="pencil" label=${t("rename_one", { title })} onClick=${() => onRename(session)} />
    <${IconButton} icon="trash" label=${t("delete_one", { title })} onClick=${() => onDelete(session)} />
  </div>`;
}
