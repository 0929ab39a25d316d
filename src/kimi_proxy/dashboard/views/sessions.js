// Sessions: found, named, compared, taken away, deleted. Looking at one changes nothing in the traffic.
import { html, useState } from "../html.js";
import { phrases } from "../i18n.js";
import { useKnown } from "../known.js";
import { Card } from "../parts/card.js";
import { Icon } from "../parts/icon.js";
import { Failure } from "../parts/notice.js";
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
  return html`<div class="view">
    <${Card} title=${t("title")} aside=${t("total", { n: found.total })} note=${t("note")}>
      <div class="sessions-tools">
        <label class="search">
          <${Icon} name="search" />
          <input type="search" value=${asked} placeholder=${t("search")} aria-label=${t("search")} onInput=${(event) => setAsked(event.currentTarget.value)} />
        </label>
        <div class="row-actions">
          <button type="button" disabled=${picked.length !== 2} title=${t("compare_hint")} onClick=${() => setOpen({ name: "compare", sessions: picked })}>${t("compare")}</button>
          <button type="button" class="danger" disabled=${picked.length === 0} onClick=${() => setOpen({ name: "delete", sessions: picked })}>${picked.length ? t("delete_chosen", { n: picked.length }) : t("delete_none")}</button>
          <${Export} sessions=${picked} />
        </div>
      </div>
      ${found.error && html`<${Failure} error=${found.error} again=${found.again} />`}
      <${List} sessions=${found.sessions} chosen=${chosen} onChoose=${choose} onRename=${(session) => setOpen({ name: "rename", sessions: [session] })} onDelete=${(session) => setOpen({ name: "delete", sessions: [session] })} asked=${asked} />
      ${found.more && html`<button type="button" class="sessions-more" onClick=${found.more}>${t("more")}</button>`}
    <//>
    ${open?.name === "compare" && html`<${Comparison} sessions=${open.sessions} onClose=${close} />`}
    ${open?.name === "delete" && html`<${Deletion} sessions=${open.sessions} onClose=${close} onDone=${done} />`}
    ${open?.name === "rename" && html`<${Renaming} session=${open.sessions[0]} onClose=${close} onDone=${done} />`}
  </div>`;
}
