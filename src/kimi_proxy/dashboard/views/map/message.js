// One message: what was sent, and what it was. One that a summary replaced was not sent.
import { useAnswer } from "../../lib/api.js";
import { count, percent } from "../../lib/format.js";
import { html } from "../../lib/html.js";
import { phrases } from "../../lib/i18n.js";
import { Copy } from "../../parts/copy.js";
import { Dialog } from "../../parts/dialog.js";
import { Answered } from "../../parts/notice.js";
import words from "../../words/map.js";
import { roleOf } from "./role.js";

const t = phrases(words);

export function Message({ id, message, onClose }) {
  const { index, isGone } = message;
  const path = `/api/sessions/${encodeURIComponent(id)}/context/${isGone ? "summarized/" : ""}${index}`;
  const title = t(isGone ? "message_gone" : "message", { index, role: roleOf(message) });
  return html`<${Dialog} wide title=${title} onClose=${onClose}>
    <p class="soft">${factsOf(message)}</p>
    <${Answered} answer=${useAnswer(path)} nothing=${t("gone")}>
      ${(texts) => (isGone ? html`<${Sides} ...${texts} sentAs="sent_for_it" />` : html`<${Texts} ...${texts} />`)}
    <//>
  <//>`;
}

function factsOf({ tokens, isGone, start_percent: start }) {
  if (isGone) return t("gone_facts", { tokens: count(tokens) });
  return t("message_facts", { tokens: count(tokens), share: percent(start) });
}

function Texts({ sent, received, changed }) {
  return changed ? html`<${Sides} received=${received} sent=${sent} />` : html`<${Text} title=${t("unchanged")} text=${sent} />`;
}

function Sides({ received, sent, sentAs = "sent" }) {
  return html`<div class="sides"><${Text} title=${t("received")} text=${received} /><${Text} title=${t(sentAs)} text=${sent} /></div>`;
}

function Text({ title, text }) {
  return html`<section class="side" aria-label=${title}>
    <header><h3>${title}</h3><${Copy} text=${text} /></header>
    <pre tabindex="0" class="mono">${text || t("empty_text")}</pre>
  </section>`;
}
