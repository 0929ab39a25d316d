// The last request, drawn to scale: where each message stands in the window, and what became of it.
import { useAnswer } from "../lib/api.js";
import { focus, pinned } from "../state/focus.js";
import { percent, tokens, when } from "../lib/format.js";
import { html, useState } from "../lib/html.js";
import { phrases } from "../lib/i18n.js";
import { useKnown } from "../state/traffic.js";
import { Banner } from "../parts/banner.js";
import { Card } from "../parts/card.js";
import { Answered, Empty } from "../parts/notice.js";
import { Start } from "../parts/start.js";
import { link } from "../lib/route.js";
import { useSignal } from "../lib/signal.js";
import { useTurn } from "../state/refresh.js";
import words from "../words/map.js";
import { Described } from "./map/described.js";
import { Keys } from "./map/keys.js";
import { Message } from "./map/message.js";
import { Messages } from "./map/messages.js";
import { Strip } from "./map/strip.js";

const t = phrases(words);

export function View() {
  useKnown();
  useSignal(pinned);
  const id = focus();
  const answer = useAnswer(id && `/api/sessions/${encodeURIComponent(id)}/context`, useTurn(id, ["metric"]));
  if (!id) return html`<div class="view"><${Card} title=${t("title")}><${Empty}>${t("no_session")}<//><${Start} /><//></div>`;
  return html`<div class="view">
    <${Answered} answer=${answer} nothing=${html`<${NotSeen} />`}>${(context) => html`<${Context} key=${id} id=${id} context=${context} />`}<//>
  </div>`;
}

/** What people say is in memory only; what was compressed is on disk all the same. */
function NotSeen() {
  return html`${t("not_seen")} ${t("on_disk")} <a href=${link("compression")}>${t("to_compression")}</a>`;
}

function Context({ id, context }) {
  const [open, setOpen] = useState(null);
  const buried = context.messages.filter(({ flags }) => flags.includes("buried"));
  const isBuried = context.buried || buried.length > 0;
  return html`
    ${isBuried && html`<${Banner} level="caution" title=${t("buried")}>${t("buried_what")}<//>`}
    <${Card} title=${t("title")} aside="${context.model} · ${when(context.at)}" note=${noteOf(context)}>
      <${Strip} context=${context} onOpen=${setOpen} />
      <${Keys} context=${context} />
    <//>
    <${Card} title=${t("messages", { n: context.messages.length })} note=${t("messages_note")}>
      <${Messages} context=${context} onOpen=${setOpen} />
    <//>
    <${Described} tools=${context.described_tools} />
    ${open !== null && html`<${Message} id=${id} message=${open} onClose=${() => setOpen(null)} />`}
  `;
}

function noteOf({ tokens: used, max_context: size, percent: share }) {
  if (!size) return t("whole_unknown", { used: tokens(used) });
  return t("whole", { used: tokens(used), size: tokens(size), share: percent(share) });
}
