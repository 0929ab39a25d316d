// A word or a number that explains itself when it is asked to: dotted, and a button for those who have no pointer.
import { html } from "../lib/html.js";
import { Tip } from "./tip.js";

export function Explained({ text, children }) {
  return html`<${Tip} text=${text}>
    ${(props, open) => html`<button type="button" class="explained" ...${props} onClick=${open}>${children}</button>`}
  <//>`;
}
