// What is shown when it is asked for: the browser's own details.
import { html } from "../lib/html.js";
import { Icon } from "./icon.js";

export function Fold({ title, open = false, children }) {
  return html`<details class="fold" open=${open}>
    <summary><${Icon} name="chevron" />${title}</summary>
    <div class="fold-content">${children}</div>
  </details>`;
}
