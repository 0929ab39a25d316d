// The messages one below the other.
import { percent, tokens } from "../../format.js";
import { html } from "../../html.js";
import { phrases } from "../../i18n.js";
import { Windowed } from "../../parts/windowed.js";
import words from "../../words/map.js";

const t = phrases(words);
const ROW = 46;
const LEVELS = { masked: "info", compressed: "info", reinjected: "caution", buried: "critical", memory: "memory" };

export function Messages({ messages, onOpen }) {
  const largest = Math.max(1, ...messages.map((message) => message.tokens));
  const draw = (message) => html`<div key=${message.index} role="listitem" class="message-row" style=${{ height: `${ROW}px` }}>
    <button type="button" onClick=${() => onOpen(message)}>
      <span class="message-index soft number">${message.index}</span>
      <span class="message-role"><span class="swatch of-${message.kind}"></span>${roleOf(message)}</span>
      <span class="message-bar"><span class="of-${message.kind}" style=${{ width: `${(100 * message.tokens) / largest}%` }}></span></span>
      <span class="message-tokens number" title=${t("starts", { share: percent(message.start_percent) })}>${tokens(message.tokens)}</span>
      <span class="message-text soft">${message.preview}</span>
      <span class="message-flags">${message.flags.map((flag) => html`<span key=${flag} class="badge ${LEVELS[flag] ?? ""}">${t(`flag_${flag}`)}</span>`)}</span>
    </button>
  </div>`;
  return html`<${Windowed} label=${t("messages", { n: messages.length })} rows=${messages} rowHeight=${ROW} height="60vh" draw=${draw} />`;
}

const ROLES = ["system", "user", "assistant", "tool"];
const roleOf = ({ role }) => (ROLES.includes(role) ? t(`role_${role}`) : role);
