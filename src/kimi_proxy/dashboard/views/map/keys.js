// What the colours and patterns of the strip mean.
import { PARTS } from "../../codes/composition.js";
import { tokens } from "../../lib/format.js";
import { html } from "../../lib/html.js";
import { phrases } from "../../lib/i18n.js";
import words from "../../words/map.js";

const t = phrases(words);
const FLAGS = ["masked", "compressed", "reinjected", "buried"];

export function Keys({ context }) {
  const seen = FLAGS.filter((flag) => context.messages.some(({ flags }) => flags.includes(flag)));
  return html`<ul class="keys number">
    ${PARTS.map(
      (name) => html`<li key=${name}>
        <span class="swatch of-${name}"></span>${t(name)} <strong>${tokens(context.composition[name])}</strong>
      </li>`,
    )}
    ${
      context.apart?.tool_definitions_tokens > 0 &&
      html`<li><span class="swatch of-tools faded"></span>${t("definitions")} <strong>${tokens(context.apart.tool_definitions_tokens)}</strong></li>`
    }
    ${seen.map((flag) => html`<li key=${flag}><span class="swatch flagged ${flag}"></span>${t(`flag_${flag}`)}</li>`)}
  </ul>`;
}
