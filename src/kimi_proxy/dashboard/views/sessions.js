// Sessions: found, named, compared, taken away, deleted. Looking at one changes nothing in the traffic.
import { html, useState } from "../lib/html.js";
import { phrases } from "../lib/i18n.js";
import { useKnown } from "../state/traffic.js";
import { Card } from "../parts/card.js";
import { Icon } from "../parts/icon.js";
import { Failure } from "../parts/notice.js";
import { Start } from "../parts/start.js";
import words from "../words/sessions.js";
import { Comparison } from "./sessions/comparison.js";
import { Deletion } from "./sessions/deletion.js";
import { Export } from "./sessions/export.js";
import { List } from "./sessions/list.js";
import { useFound } from "./sessions/found.js";
import { Renaming } from "./sessions/renaming.js";

const t = phrases(words);

export function View() {
  useKnown();
  const [asked, setAsked] = useState("");
  const [chosen, setChosen] = useState([]);
  const [open, setOpen] = useState(null); // {name, sessions} of a dialog
  const found = useFound(asked);
  const picked = found.sessions.filter(({ id }) => chosen.includes(id));
  const choose = (id) => setChosen(chosen.includes(id) ? chosen.filter((each) => each !== id) : [...chosen, id]);
  const close = () => setOpen(null);
  const done = () => {
    setChosen([]);
    found.again();
    close();
  };
  const ask = (name) => (session) => setOpen({ name, sessions: [session] });
  return html`<div class="view">
    <${Card} title=${t("title")} aside=${t("total", { n: found.total })} note=${t("note")}>
      <div class="sessions-tools">
        <${Search} asked=${asked} onAsk=${setAsked} />
        <${Tools} picked=${picked} onOpen=${(name) => setOpen({ name, sessions: picked })} />
      </div>
      ${found.error && html`<${Failure} error=${found.error} again=${found.again} />`}
      <${List}
        sessions=${found.sessions}
        chosen=${chosen}
        onChoose=${choose}
        onRename=${ask("rename")}
        onDelete=${ask("delete")}
        asked=${asked}
      />
      ${found.total === 0 && !asked && html`<${Start} />`}
      ${found.more && html`<button type="button" class="sessions-more" onClick=${found.more}>${t("more")}</button>`}
    <//>
    ${open?.name === "compare" && html`<${Comparison} sessions=${open.sessions} onClose=${close} />`}
    ${open?.name === "delete" && html`<${Deletion} sessions=${open.sessions} onClose=${close} onDone=${done} />`}
    ${open?.name === "rename" && html`<${Renaming} session=${open.sessions[0]} onClose=${close} onDone=${done} />`}
  </div>`;
}

function Search({ asked, onAsk }) {
  return html`<label class="search">
    <${Icon} name="search" />
    <input
      type="search"
      value=${asked}
      placeholder=${t("search")}
      aria-label=${t("search")}
      onInput=${(event) => onAsk(event.currentTarget.value)}
    />
  </label>`;
}

function Tools({ picked, onOpen }) {
  const n = picked.length;
  return html`<div class="row-actions">
    ${n !== 2 && html`<span id="compare-hint" class="soft">${t("compare_hint")}</span>`}
    <button type="button" disabled=${n !== 2} aria-describedby="compare-hint" onClick=${() => onOpen("compare")}>
      ${t("compare")}
    </button>
    <button type="button" class="danger" disabled=${n === 0} onClick=${() => onOpen("delete")}>
      ${n ? t("delete_chosen", { n }) : t("delete_none")}
    </button>
    <${Export} sessions=${picked} />
  </div>`;
}
