// Parts of a whole as one bar, with a legend that holds the numbers.
import { html } from "../lib/html.js";
import { part as shareText } from "../lib/format.js";

/** `parts`: `{name, label, value, text}`, coloured by `name`; `whole`: what the full width stands for. */
export function Bar({ label, parts, whole }) {
  const sum = whole ?? parts.reduce((all, part) => all + part.value, 0);
  const share = (part) => (sum > 0 ? (100 * part.value) / sum : 0);
  const spoken = parts.map((part) => `${part.label} ${shareText(share(part))}`).join(", ");
  return html`<div class="bar" role="img" aria-label="${label}: ${spoken}">
    ${parts
      .filter(share)
      .map(
        (part) =>
          html`<span key=${part.name} class="bar-part of-${part.name}" style=${{ width: `${share(part)}%` }}></span>`,
      )}
  </div>`;
}

export function Legend({ parts }) {
  const sum = parts.reduce((all, part) => all + part.value, 0);
  return html`<dl class="legend">
    ${parts.map(
      (part) => html`<div key=${part.name} class="legend-row">
        <dt><span class="swatch of-${part.name}"></span>${part.label}</dt>
        <dd class="legend-value">${part.text}</dd>
        <dd class="legend-share">${shareText(sum > 0 ? (100 * part.value) / sum : 0)}</dd>
      </div>`,
    )}
  </dl>`;
}
