// A table that reads well aloud; on a phone each row is a card, with the head of its column before each value.
import { html } from "../lib/html.js";
import { Empty } from "./notice.js";

/**
 * `columns`: `{key, title, label, cell(row), align, wide}`, `label` being the title as text; `sums`: a last row; `rows`: objects; `keyOf(row)`; `caption` for those who hear it.
 * `onChoose(row)` makes rows clickable; the first cell's own link or button is for the keyboard.
 */
export function Table({ caption, columns, rows, keyOf, empty, onChoose, rowClass, maxHeight, sums }) {
  if (rows.length === 0) return html`<${Empty}>${empty}<//>`;
  const style = maxHeight ? { maxHeight } : undefined;
  return html`<div class="table-frame" role="group" aria-label=${caption} tabindex="0" style=${style}>
    <table class="table" role="table">
      <caption class="unseen">${caption}</caption>
      <thead role="rowgroup">
        <tr role="row">${columns.map((each) => html`<th key=${each.key} role="columnheader" scope="col" class=${each.align ?? ""}>${each.title}</th>`)}</tr>
      </thead>
      <tbody role="rowgroup">
        ${rows.map(
          (row) => html`<tr
            key=${keyOf(row)}
            role="row"
            class="${onChoose ? "choosable" : ""} ${rowClass?.(row) ?? ""}"
            onClick=${onChoose && (() => onChoose(row))}
          >
            ${columns.map((each) => cellOf(each, each.cell(row)))}
          </tr>`,
        )}
      </tbody>
      ${
        sums &&
        html`<tfoot role="rowgroup">
          <tr role="row">${columns.map((each) => cellOf(each, sums[each.key] ?? ""))}</tr>
        </tfoot>`
      }
    </table>
  </div>`;
}

const cellOf = ({ key, title, label, align, wide }, value) =>
  html`<td
    key=${key}
    role="cell"
    class="${align ?? ""} ${wide ? "wide" : ""}"
    data-label=${label ?? (typeof title === "string" ? title : "")}
  >
    ${value}
  </td>`;
