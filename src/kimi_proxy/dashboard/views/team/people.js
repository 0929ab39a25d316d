// People and their tokens: an admin adds, rotates, revokes, removes, exports and erases; everyone makes tokens that end.
import { download, post, remove, useAnswer } from "../../lib/api.js";
import { when } from "../../lib/format.js";
import { html, useState } from "../../lib/html.js";
import { phrases } from "../../lib/i18n.js";
import { Card } from "../../parts/card.js";
import { Copy } from "../../parts/copy.js";
import { Dialog } from "../../parts/dialog.js";
import { Answered, Failure } from "../../parts/notice.js";
import { Table } from "../../parts/table.js";
import words from "../../words/team.js";

const t = phrases(words);
const MAX_HEIGHT = "28rem";
const DAYS = [7, 30, 90];

const place = (name) => `/api/team/people/${encodeURIComponent(name)}`;

export function People() {
  const [turn, setTurn] = useState(0);
  const [open, setOpen] = useState(null);
  const answer = useAnswer("/api/team/people", turn);
  const close = () => setOpen(null);
  const done = () => setTurn((n) => n + 1);
  const ask = (kind, person) => () => setOpen({ kind, person });
  const button = (kind, person) =>
    html`<button type="button" class="quiet" aria-label=${t(`${kind}_one`, { name: person.name })} onClick=${ask(kind, person)}>
      ${t(kind)}
    </button>`;
  const actions = (row) => (row.revoked ? ["rotate", "export", "erase", "remove"] : ["rotate", "export", "revoke"]);
  const columns = [
    { key: "name", title: t("person"), cell: (row) => row.name },
    { key: "role", title: t("role"), cell: (row) => t(`role_${row.role}`) },
    { key: "team", title: t("team"), cell: (row) => row.team || t("none") },
    { key: "rotated", title: t("token_since"), cell: (row) => when(row.rotated_at) },
    { key: "state", title: t("state"), cell: (row) => t(row.revoked ? "revoked" : "active") },
    { key: "actions", title: t("actions"), cell: (row) => html`<div class="row-actions">${actions(row).map((kind) => button(kind, row))}</div>` },
  ];
  const aside = html`<button type="button" onClick=${ask("add", null)}>${t("add")}</button>`;
  return html`<${Card} title=${t("people")} note=${t("people_note")} aside=${aside}>
    <${Answered} answer=${answer}>
      ${({ people }) =>
        html`<${Table}
          caption=${t("people")}
          columns=${columns}
          rows=${people}
          keyOf=${(row) => row.name}
          empty=${t("people_empty")}
          maxHeight=${MAX_HEIGHT}
        />`}
    <//>
    ${open?.kind === "add" && html`<${Adding} onClose=${close} onDone=${done} />`}
    ${open && open.kind !== "add" && html`<${Confirming} ...${open} onClose=${close} onDone=${done} />`}
  <//>`;
}

function Adding({ onClose, onDone }) {
  const [asked, setAsked] = useState({ name: "", role: "member", team: "" });
  const [made, setMade] = useState(null);
  const [error, setError] = useState(null);
  const change = (key) => (event) => setAsked({ ...asked, [key]: event.currentTarget.value });
  const submit = (event) => {
    event.preventDefault();
    post("/api/team/people", asked).then((answer) => {
      setMade(answer.token);
      onDone();
    }, setError);
  };
  if (made) return html`<${Shown} token=${made} name=${asked.name} onClose=${onClose} />`;
  return html`<${Dialog} title=${t("add_title")} onClose=${onClose}>
    <form class="door" onSubmit=${submit}>
      <label>${t("person")} <input value=${asked.name} maxlength="64" required autofocus onInput=${change("name")} /></label>
      <label>
        ${t("role")}
        <select value=${asked.role} onChange=${change("role")}>
          ${["member", "admin"].map((each) => html`<option key=${each} value=${each}>${t(`role_${each}`)}</option>`)}
        </select>
      </label>
      <label>${t("team")} <input value=${asked.team} maxlength="64" onInput=${change("team")} /></label>
      ${error && html`<${Failure} error=${error} />`}
      <div class="dialog-actions">
        <button type="button" onClick=${onClose}>${t("cancel")}</button>
        <button type="submit" class="main">${t("add")}</button>
      </div>
    </form>
  <//>`;
}

const CALLS = {
  rotate: (name) => post(`${place(name)}/rotate`),
  revoke: (name) => post(`${place(name)}/revoke`),
  remove: (name) => remove(place(name)),
  erase: (name) => post(`${place(name)}/erase`),
  export: (name) => download(`${place(name)}/export`, `kimi-proxy-${name}.jsonl`),
};

function Confirming({ kind, person, onClose, onDone }) {
  const [made, setMade] = useState(null);
  const [error, setError] = useState(null);
  const { name } = person;
  const confirm = () =>
    CALLS[kind](name).then((answer) => {
      onDone();
      if (answer?.token) setMade(answer.token);
      else onClose();
    }, setError);
  if (made) return html`<${Shown} token=${made} name=${name} onClose=${onClose} />`;
  const actions = html`
    <button type="button" autofocus onClick=${onClose}>${t("cancel")}</button>
    <button type="button" class=${kind === "export" ? "main" : "red"} onClick=${confirm}>${t(kind)}</button>
  `;
  return html`<${Dialog} title=${t(`${kind}_one`, { name })} onClose=${onClose} actions=${actions}>
    <p>${t(`${kind}_text`)}</p>
    ${error && html`<${Failure} error=${error} />`}
  <//>`;
}

/** A token, which is shown this once. */
function Shown({ token, name, onClose }) {
  const actions = html`<button type="button" class="main" onClick=${onClose}>${t("copied")}</button>`;
  return html`<${Dialog} title=${t("token_of", { name })} onClose=${onClose} actions=${actions}>
    <p>${t("token_once")}</p>
    <div class="command"><pre class="mono" tabindex="0">${token}</pre><${Copy} text=${token} /></div>
  <//>`;
}

export function OwnTokens({ name }) {
  const [turn, setTurn] = useState(0);
  const [isMaking, setMaking] = useState(false);
  const [error, setError] = useState(null);
  const answer = useAnswer("/api/me/tokens", turn);
  const again = () => setTurn((n) => n + 1);
  const end = (id) => () => remove(`/api/me/tokens/${encodeURIComponent(id)}`).then(again, setError);
  const keep = () => download("/api/me/export", `kimi-proxy-${name}.jsonl`).catch(setError);
  const columns = [
    { key: "label", title: t("label"), cell: (row) => row.label || t("none") },
    { key: "created", title: t("made_at"), cell: (row) => when(row.created_at) },
    { key: "expires", title: t("ends_at"), cell: (row) => when(row.expires_at) },
    { key: "state", title: t("state"), cell: (row) => t(row.is_expired ? "expired" : "active") },
    {
      key: "actions",
      title: t("actions"),
      cell: (row) => html`<button type="button" class="quiet" onClick=${end(row.id)}>${t("end")}</button>`,
    },
  ];
  const aside = html`<button type="button" onClick=${keep}>${t("export_me")}</button>
    <button type="button" onClick=${() => setMaking(true)}>${t("make_token")}</button>`;
  return html`<${Card} title=${t("own_tokens")} note=${t("own_tokens_note")} aside=${aside}>
    ${error && html`<${Failure} error=${error} />`}
    <${Answered} answer=${answer}>
      ${({ tokens, max_days: maxDays }) =>
        html`<${Table}
            caption=${t("own_tokens")}
            columns=${columns}
            rows=${tokens}
            keyOf=${(row) => row.id}
            empty=${t("own_tokens_empty")}
            maxHeight=${MAX_HEIGHT}
          />
          ${isMaking && html`<${Making} name=${name} maxDays=${maxDays} onClose=${() => setMaking(false)} onDone=${again} />`}`}
    <//>
  <//>`;
}

function Making({ name, maxDays, onClose, onDone }) {
  const choices = [...new Set([...DAYS.filter((each) => each < maxDays), maxDays])];
  const [asked, setAsked] = useState({ label: "", days: choices[0] });
  const [made, setMade] = useState(null);
  const [error, setError] = useState(null);
  const submit = (event) => {
    event.preventDefault();
    post("/api/me/tokens", asked).then((answer) => {
      setMade(answer.token);
      onDone();
    }, setError);
  };
  if (made) return html`<${Shown} token=${made} name=${name} onClose=${onClose} />`;
  return html`<${Dialog} title=${t("make_token")} onClose=${onClose}>
    <form class="door" onSubmit=${submit}>
      <label>
        ${t("label")}
        <input value=${asked.label} maxlength="80" autofocus onInput=${(event) => setAsked({ ...asked, label: event.currentTarget.value })} />
      </label>
      <label>
        ${t("lasts")}
        <select value=${asked.days} onChange=${(event) => setAsked({ ...asked, days: Number(event.currentTarget.value) })}>
          ${choices.map((each) => html`<option key=${each} value=${each}>${t("lasts_days", { n: each })}</option>`)}
        </select>
      </label>
      ${error && html`<${Failure} error=${error} />`}
      <div class="dialog-actions">
        <button type="button" onClick=${onClose}>${t("cancel")}</button>
        <button type="submit" class="main">${t("make_token")}</button>
      </div>
    </form>
  <//>`;
}
