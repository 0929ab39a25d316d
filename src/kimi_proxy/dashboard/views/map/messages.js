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
  const draw = (message) =>
    html`<${Row} key=${message.index} message=${message} share=${(100 * message.tokens) / largest} onOpen=${onOpen} />`;
  const label = t("messages", { n: messages.length });
  return html`<${Windowed} label=${label} rows=${messages} rowHeight=${ROW} height="60vh" draw=${draw} />`;
}

function Row({ message, share, onOpen }) {
  const { index, kind, flags, preview } = message;
  const starts = t("starts", { share: percent(message.start_percent) });
  return html`<div role="listitem" class="message-row" style=${{ height: `${ROW}px` }}>
    <button type="button" onClick=${() => onOpen(message)}>
      <span class="message-index soft number">${index}</span>
      <span class="message-role"><span class="swatch of-${kind}"></span>${roleOf(message)}</span>
      <span class="message-bar"><span class="of-${kind}" style=${{ width: `${share}%` }}></span></span>
      <span class="message-tokens number" title=${starts}>${tokens(message.tokens)}</span>
      <span class="message-text soft">${preview}</span>
      <span class="message-flags">${flags.map(Flag)}</span>
    </button>
  </div>`;
}

const Flag = (flag) => html`<span key=${flag} class="badge ${LEVELS[flag] ?? ""}">${flagOf(flag)}</span>`;

const flagOf = (flag) => (Object.hasOwn(LEVELS, flag) ? t(`flag_${flag}`) : flag);

const ROLES = ["system", "user", "assistant", "tool"];
const roleOf = ({ role }) => (ROLES.includes(role) ? t(`role_${role}`) : role);
