// The messages one below the other; those that a summary replaced unfold under it.
import { percent, tokens } from "../../lib/format.js";
import { html, useState } from "../../lib/html.js";
import { phrases } from "../../lib/i18n.js";
import { Icon } from "../../parts/icon.js";
import { Windowed } from "../../parts/windowed.js";
import words from "../../words/map.js";
import { roleOf } from "./role.js";

const t = phrases(words);
const ROW = 46;
const LEVELS = { masked: "info", compressed: "info", reinjected: "caution", buried: "critical", memory: "memory" };

export function Messages({ context, onOpen }) {
  const { messages, summarized: gone = [], summary_index: summary } = context;
  const [isOpen, setOpen] = useState(false);
  const largest = Math.max(1, ...[...messages, ...gone].map((message) => message.tokens));
  const behind = [{ key: "fold", fold: gone.length }, ...(isOpen ? gone.map(asGone) : [])];
  const rows = messages.flatMap((message) => [
    { key: message.index, message },
    ...(gone.length && message.index === summary ? behind : []),
  ]);
  const draw = ({ key, message, fold }) =>
    message
      ? html`<${Row} key=${key} message=${message} share=${(100 * message.tokens) / largest} onOpen=${onOpen} />`
      : html`<${Behind} key=${key} n=${fold} isOpen=${isOpen} onToggle=${() => setOpen(!isOpen)} />`;
  const label = t("messages", { n: messages.length });
  return html`<${Windowed} label=${label} rows=${rows} rowHeight=${ROW} height="60vh" draw=${draw} />`;
}

const asGone = (message) => ({ key: `gone-${message.index}`, message: { ...message, isGone: true, flags: [] } });

function Behind({ n, isOpen, onToggle }) {
  return html`<div role="listitem" class="message-row behind ${isOpen ? "open" : ""}" style=${{ height: `${ROW}px` }}>
    <button type="button" aria-expanded=${isOpen ? "true" : "false"} onClick=${onToggle}><${Icon} name="chevron" />${t("behind", { n })}</button>
  </div>`;
}

function Row({ message, share, onOpen }) {
  const { index, kind, flags, preview, isGone } = message;
  return html`<div role="listitem" class="message-row ${isGone ? "gone" : ""}" style=${{ height: `${ROW}px` }}>
    <button type="button" onClick=${() => onOpen(message)}>
      <span class="message-index soft number">${index}</span>
      <span class="message-role"><span class="swatch of-${kind}"></span>${roleOf(message)}</span>
      <span class="message-bar"><span class="of-${kind}" style=${{ width: `${share}%` }}></span></span>
      <span class="message-tokens number">${tokens(message.tokens)}${!isGone && html`<span class="unseen">, ${t("starts", { share: percent(message.start_percent) })}</span>`}</span>
      <span class="message-text soft">${preview}</span>
      <span class="message-flags">${isGone ? html`<span class="badge">${t("not_sent")}</span>` : flags.map(Flag)}</span>
    </button>
  </div>`;
}

const Flag = (flag) => html`<span key=${flag} class="badge ${LEVELS[flag] ?? ""}">${flagOf(flag)}</span>`;

const flagOf = (flag) => (Object.hasOwn(LEVELS, flag) ? t(`flag_${flag}`) : flag);
