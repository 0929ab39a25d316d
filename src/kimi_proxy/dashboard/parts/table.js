// A table that reads well aloud, and scrolls inside itself where the screen is narrow.
import { html } from "../lib/html.js";
import { Empty } from "./notice.js";

/**
 * `columns`: `{key, title, cell(row), align, wide}`; `rows`: objects; `keyOf(row)`; `caption` for those who hear it.
 * `onChoose(row)` makes rows clickable; the first cell's own link or button is for the keyboard.
 */
export function Table({ caption, columns, rows, keyOf, empty, onChoose, rowClass, maxHeight }) {
  if (rows.length === 0) return html`<${Empty}>${empty}<//>`;
  const style = maxHeight ? { maxHeight } : undefined;
  return html`<div class="table-frame" role="group" aria-label=${caption} tabindex="0" style=${style}>
    <table class="table">
      <caption class="unseen">${caption}</caption>
      <thead>
        <tr>${columns.map((each) => html`<th key=${each.key} scope="col" class=${each.align ?? ""}>${each.title}</th>`)}</tr>
      </thead>
      <tbody>
        ${rows.map(
          (row) => html`<tr
            key=${keyOf(row)}
            class="${onChoose ? "choosable" : ""} ${rowClass?.(row) ?? ""}"
            onClick=${onChoose && (() => onChoose(row))}
          >
            ${columns.map(
              (each) =>
                html`<td key=${each.key} class="${each.align ?? ""} ${each.wide ? "wide" : ""}">${each.cell(row)}</td>`,
            )}
          </tr>`,
        )}
      </tbody>
    </table>
  </div>`;
}
