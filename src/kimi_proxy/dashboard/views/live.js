import { html } from "../html.js";
export function View() { return html`<div class="view"></div>`; }
