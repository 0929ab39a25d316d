// What kimi-proxy did, the newest first: cuts, compressions, other models, repeated instructions.
import { titleOf } from "../../state/focus.js";
import { clock } from "../../lib/format.js";
import { happening } from "../../codes/events.js";
import { html } from "../../lib/html.js";
import { phrases } from "../../lib/i18n.js";
import { known } from "../../state/traffic.js";
import { Card } from "../../parts/card.js";
import { Empty } from "../../parts/notice.js";
import words from "../../words/live.js";

const t = phrases(words);
const SHOWN = 12;

export function Activity() {
  const shown = known.events.map((event) => ({ event, text: happening(event) })).filter(({ text }) => text);
  const newest = shown.slice(-SHOWN).reverse();
  return html`<${Card} title=${t("activity")} note=${t("activity_note")}>
    ${
      newest.length === 0
        ? html`<${Empty}>${t("no_activity")}<//>`
        : html`<ol class="activity">${newest.map(({ event, text }) => html`<${Row} key=${event.seq} event=${event} text=${text} />`)}</ol>`
    }
  <//>`;
}

function Row({ event, text }) {
  const session = known.sessions.get(event.session_id);
  return html`<li>
    <time class="soft number" datetime=${event.at}>${clock(event.at)}</time>
    <span>${text}</span>
    ${session && html`<span class="soft activity-of">${titleOf(session)}</span>`}
  </li>`;
}
