// What a team used, by person, team, model and day; and, for admins, who is in it and who did what.
import { useAnswer } from "../lib/api.js";
import { count, tokens, usd, when } from "../lib/format.js";
import { html, useState } from "../lib/html.js";
import { phrases } from "../lib/i18n.js";
import { useSignal } from "../lib/signal.js";
import { Card } from "../parts/card.js";
import { Answered } from "../parts/notice.js";
import { Table } from "../parts/table.js";
import { me } from "../state/me.js";
import words from "../words/team.js";
import { OwnTokens, People } from "./team/people.js";

const t = phrases(words);
const GROUPS = ["person", "team", "model", "day", "person,model", "person,day", "team,day", "model,day"];
const DAYS = [1, 7, 30, 90];
const MAX_HEIGHT = "28rem";
const SERVER = "admin"; // who has the server's own token, and makes no others

export function View() {
  const { is_team: isTeam, person, role } = useSignal(me);
  const isAdmin = role === "admin";
  return html`<div class="view">
    <${Usage} />
    ${isTeam && person && person !== SERVER && html`<${OwnTokens} name=${person} />`}
    ${isAdmin && html`<${People} />`} ${isAdmin && html`<${AuditLog} />`}
  </div>`;
}

function Usage() {
  const [by, setBy] = useState("person");
  const [days, setDays] = useState(30);
  const answer = useAnswer(`/api/report?by=${by}&days=${days}`);
  const aside = html`<label>
      ${t("by")}
      <select value=${by} onChange=${(event) => setBy(event.currentTarget.value)}>
        ${GROUPS.map((each) => html`<option key=${each} value=${each}>${groupName(each)}</option>`)}
      </select>
    </label>
    <label>
      ${t("days")}
      <select value=${days} onChange=${(event) => setDays(Number(event.currentTarget.value))}>
        ${DAYS.map((each) => html`<option key=${each} value=${each}>${t("days_of", { n: each })}</option>`)}
      </select>
    </label>`;
  return html`<${Card} title=${t("usage")} aside=${aside} note=${t("usage_note")}>
    <${Answered} answer=${answer}>${(value) => html`<${UsageTable} ...${value} />`}<//>
  <//>`;
}

function UsageTable({ by, rows }) {
  const names = by.map((key) => ({ key, title: t(key), cell: (row) => row[key] || t("none") }));
  const figures = [
    { key: "requests", title: t("requests"), cell: (row) => count(row.requests), align: "right" },
    { key: "input", title: t("input"), cell: (row) => tokens(row.input_tokens), align: "right" },
    { key: "cached", title: t("cached"), cell: (row) => tokens(row.cached_tokens), align: "right" },
    { key: "output", title: t("output"), cell: (row) => tokens(row.output_tokens), align: "right" },
    { key: "cost", title: t("cost"), cell: (row) => usd(row.cost_usd), align: "right" },
    { key: "saved", title: t("saved"), cell: (row) => usd(row.net_saved_usd), align: "right" },
  ];
  return html`<${Table}
    caption=${t("usage")}
    columns=${[...names, ...figures]}
    rows=${rows}
    keyOf=${(row) => by.map((key) => row[key]).join("\n")}
    empty=${t("usage_empty")}
    maxHeight=${MAX_HEIGHT}
  />`;
}

function AuditLog() {
  const answer = useAnswer("/api/audit-log?limit=200");
  const columns = [
    { key: "at", title: t("at"), cell: (row) => when(row.at) },
    { key: "person", title: t("person"), cell: (row) => row.person || t("none") },
    { key: "action", title: t("action"), cell: (row) => actionName(row.action) },
    { key: "subject", title: t("subject"), cell: (row) => html`<code>${row.subject}</code>` },
    { key: "outcome", title: t("outcome"), cell: (row) => outcomeName(row.outcome) },
  ];
  return html`<${Card} title=${t("audit_log")} note=${t("audit_note")}>
    <${Answered} answer=${answer}>
      ${({ entries }) =>
        html`<${Table}
          caption=${t("audit_log")}
          columns=${columns}
          rows=${entries}
          keyOf=${(row) => row.seq}
          empty=${t("audit_empty")}
          maxHeight=${MAX_HEIGHT}
        />`}
    <//>
  <//>`;
}

const groupName = (by) => by.split(",").map((each) => t(each)).join(", ");

const outcomeName = (outcome) => (`outcome_${outcome}` in words.en ? t(`outcome_${outcome}`) : outcome);

const actionName = (action) => (`action_${action}` in words.en ? t(`action_${action}`) : action);
