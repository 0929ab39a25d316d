// One message: what was sent, and what it was.
import { useAnswer } from "../../api.js";
import { count, percent } from "../../format.js";
import { html } from "../../html.js";
import { phrases } from "../../i18n.js";
import { Copy } from "../../parts/copy.js";
import { Dialog } from "../../parts/dialog.js";
import { Answered } from "../../parts/notice.js";
import words from "../../words/map.js";

const t = phrases(words);

export function Message({ id, message, onClose }) {
  const answer = useAnswer(`/api/sessions/${encodeURIComponent(id)}/context/${message.index}`);
  const title = t("message", { index: message.index, role: message.role });
  return html`<${Dialog} wide title=${title} onClose=${onClose}>
    <p class="soft">${t("message_facts", { tokens: count(message.tokens), share: percent(message.start_percent) })}</p>
    <${Answered} answer=${answer} nothing=${t("gone")}>${(texts) => html`<${Texts} ...${texts} />`}<//>
  <//>`;
}

function Texts({ sent, came, changed }) {
  if (!changed) return html`<${Text} title=${t("unchanged")} text=${sent} />`;
  return html`<div class="sides"><${Text} title=${t("came")} text=${came} /><${Text} title=${t("sent")} text=${sent} /></div>`;
}

function Text({ title, text }) {
  return html`<section class="side" aria-label=${title}>
    <header><h3>${title}</h3><${Copy} text=${text} /></header>
    <pre tabindex="0" class="mono">${text || t("empty_text")}</pre>
  </section>`;
}
