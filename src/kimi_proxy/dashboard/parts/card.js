// A titled part of a view.
import { html } from "../lib/html.js";

/** `title` and `children`; `aside` stands at the right of the title, `note` under it. */
export function Card({ title, aside, note, children, name = "", level = 2 }) {
  const Title = `h${level}`;
  return html`<section class="card ${name}" aria-label=${title}>
    <header class="card-head">
      <${Title} class="card-title">${title}<//>
      ${aside && html`<div class="card-aside">${aside}</div>`}
    </header>
    ${note && html`<p class="card-note">${note}</p>`}
    ${children}
  </section>`;
}
