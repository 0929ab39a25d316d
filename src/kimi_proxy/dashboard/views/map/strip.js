// The window as one strip; a message is as wide as its tokens. The list below it says the same in words.
import { tokens } from "../../lib/format.js";
import { html } from "../../lib/html.js";
import { phrases } from "../../lib/i18n.js";
import { MARKS } from "../../parts/gauge.js";
import words from "../../words/map.js";
import { roleOf } from "./role.js";

const t = phrases(words);
const EDGED = 0.6; // percent of the strip from which a piece has room for an edge
const THIN = 0.12; // percent of the strip under which neighbours are drawn as one

export function Strip({ context, onOpen }) {
  const { messages, max_context: size, percent } = context;
  const fit = percent > 100 ? 100 / percent : 1; // what does not fit in the window is drawn beyond its end
  const pieces = merged(messages.map((message) => piece(message, size ?? Math.max(1, context.tokens), fit)));
  const tools = (messages[0]?.start_percent ?? 0) * fit;
  const marks = (size ? [...MARKS, ...(fit < 1 ? [100] : [])] : []).map((mark) => [mark, mark * fit]);
  const scale = size
    ? [[0, 0], [50, 50 * fit], ...marks]
    : [
        [0, 0],
        [50, 50],
        [100, 100],
      ];
  return html`<div class="strip-frame" aria-hidden="true">
    <div class="strip">
      ${
        tools > 0.05 &&
        html`<span class="strip-piece of-tools faded" title=${t("definitions")} style=${at(0, tools)}></span>`
      }
      ${pieces.map((each) => html`<${Piece} key=${each.message.index} ...${each} onOpen=${onOpen} />`)}
      ${marks.map(([mark, left]) => html`<span key=${mark} class="strip-mark" style=${{ left: `${left}%` }}></span>`)}
    </div>
    <div class="strip-scale number">
      ${scale.map(([mark, left]) => html`<span key=${mark} style=${{ left: `${left}%` }}>${mark}</span>`)}
    </div>
  </div>`;
}

function Piece({ message, start, width, memory, title, onOpen }) {
  const looks = [`of-${message.kind}`, width < EDGED ? "thin" : "", ...message.flags].join(" ");
  return html`<span class="strip-piece ${looks}" title=${title} style=${at(start, width)} onClick=${() => onOpen(message)}>
    ${memory > 0 && html`<span class="strip-memory" style=${{ width: `${memory}%` }}></span>`}
  </span>`;
}

const at = (start, width) => ({ left: `${start}%`, width: `${width}%` });

function piece(message, whole, fit) {
  const memory = message.tokens > 0 ? (100 * message.memory_tokens) / message.tokens : 0;
  const title = `#${message.index} ${roleOf(message)} · ${tokens(message.tokens)}`;
  const start = message.start_percent * fit;
  return { message, start, width: (100 * fit * message.tokens) / whole, memory, title };
}

/** Neighbours of one kind that are too thin to be seen make one piece: a thousand messages stay quick to draw. */
function merged(pieces) {
  const found = [];
  for (const each of pieces) {
    const last = found.at(-1);
    const isThin = each.width < THIN && each.message.flags.length === 0;
    if (isThin && last?.isThin && last.message.kind === each.message.kind) {
      last.width = each.start + each.width - last.start;
    } else {
      found.push({ ...each, isThin });
    }
  }
  return found;
}
