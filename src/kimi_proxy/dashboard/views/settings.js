// What may be switched while it runs, and what else is in force. Of secrets, only whether they are set. Members of a team
// see the settings that concern their own requests.
import { patch, useAnswer } from "../lib/api.js";
import { html, useEffect, useState } from "../lib/html.js";
import { has, phrases } from "../lib/i18n.js";
import { useSignal } from "../lib/signal.js";
import { me } from "../state/me.js";
import { listen } from "../state/traffic.js";
import { Card } from "../parts/card.js";
import { Fold } from "../parts/fold.js";
import { Answered, Failure } from "../parts/notice.js";
import { useTurn } from "../state/refresh.js";
import words from "../words/settings.js";
import { Memory } from "./settings/memory.js";
import { Saved } from "./settings/saved.js";

const t = phrases(words);

export function View() {
  const answer = useAnswer("/api/settings", useTurn(null, ["settings_event"]));
  return html`<div class="view"><${Answered} answer=${answer}>${(settings) => html`<${Settings} given=${settings} />`}<//></div>`;
}

function Settings({ given }) {
  const [now, setNow] = useState(given);
  const [done, setDone] = useState(null);
  const [error, setError] = useState(null);
  const isMember = useSignal(me).role === "member";
  useEffect(() => setNow(given), [given]);
  useEffect(() => listen((event) => event.type === "settings_event" && setNow((before) => ({ ...before, switches: event.switches }))), []);
  const change = async (name, isOn) => {
    setError(null);
    try {
      const answer = await patch("/api/settings", { [name]: isOn });
      setNow(answer);
      setDone({ name, saved: answer.saved, problem: answer.problem, code: answer.problem_code });
    } catch (failure) {
      setError(failure);
      setNow((before) => ({ ...before })); // as it was before the click
    }
  };
  return html`
    <${Card} title=${t("switches")} note=${t("switches_note")}>
      <ul class="switches">
        ${Object.entries(now.switches).map(([name, isOn]) => html`<${Switch} key=${name} name=${name} isOn=${isOn} onChange=${change} />`)}
      </ul>
      ${error && html`<${Failure} error=${error} />`}
      ${done && html`<${Saved} done=${done} file=${now.file} />`}
    <//>
    <${Memory} isOn=${now.switches["memory.inject"]} />
    ${!isMember && html`<${Card} title=${t("secrets")} note=${t("secrets_note")}><${Secrets} secrets=${now.secrets} /><//>`}
    <${Card} title=${t(isMember ? "in_force_members" : "in_force")} note=${source(now.file, isMember)}><${InForce} settings=${now.settings} /><//>
  `;
}

function source(file, isMember) {
  if (isMember) return t("members_note");
  return file ? t("file", { file }) : t("no_file");
}

function Switch({ name, isOn, onChange }) {
  const id = `switch-${name}`;
  const label = has(words, `name ${name}`) ? t(`name ${name}`) : name;
  return html`<li class="switch">
    <input id=${id} type="checkbox" role="switch" checked=${isOn} aria-describedby=${`${id}-about`} onChange=${(event) => onChange(name, event.currentTarget.checked)} />
    <div>
      <label for=${id}>${label}</label> <span class="badge ${isOn ? "ok" : ""}">${t(isOn ? "on" : "off")}</span>
      <p id=${`${id}-about`} class="soft">${has(words, `about ${name}`) && t(`about ${name}`)} <code>${name}</code></p>
    </div>
  </li>`;
}

function Secrets({ secrets }) {
  const rows = Object.entries(secrets).sort(([, a], [, b]) => Number(b) - Number(a));
  return html`<ul class="secrets">
    ${rows.map(([name, isSet]) => html`<li key=${name}><code>${name}</code> <span class="badge ${isSet ? "ok" : ""}">${t(isSet ? "set" : "unset")}</span></li>`)}
  </ul>`;
}

function InForce({ settings }) {
  return Object.entries(settings).map(
    ([section, values]) => html`<${Fold} key=${section} title=${html`<code>[${section}]</code>`}>
      <dl class="in-force">
        ${flat(values).map(([name, value]) => html`<div key=${name}><dt><code>${name}</code></dt><dd><code>${JSON.stringify(value)}</code></dd></div>`)}
      </dl>
    <//>`,
  );
}

/** A table's keys, those of tables in it with their path. */
function flat(values, path = "") {
  return Object.entries(values).flatMap(([name, value]) =>
    value && typeof value === "object" && !Array.isArray(value) ? flat(value, `${path}${name}.`) : [[path + name, value]],
  );
}
