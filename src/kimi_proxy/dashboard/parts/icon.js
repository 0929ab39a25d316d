// Line drawings of 24 × 24; they say nothing that the words beside them do not.
import { html } from "../lib/html.js";

const PATHS = {
  alert: "M12 3.5 21.5 20h-19L12 3.5ZM12 10v4.5M12 17.2v.3",
  check: "m4.5 12.5 5 5 10-11",
  chevron: "m9 6 6 6-6 6",
  close: "M6 6l12 12M18 6 6 18",
  compress: "M12 3v6m0 0-2.5-2.5M12 9l2.5-2.5M12 21v-6m0 0-2.5 2.5M12 15l2.5 2.5M4 12h16",
  copy: "M9 9h10v11H9zM5 15V4h10",
  download: "M12 4v11m0 0-4-4m4 4 4-4M5 20h14",
  eye: "M2.5 12S6 5.5 12 5.5 21.5 12 21.5 12 18 18.5 12 18.5 2.5 12 2.5 12ZM12 14.5a2.5 2.5 0 1 0 0-5 2.5 2.5 0 0 0 0 5Z",
  flask: "M10 3h4M10.5 3v6L5 19.5A1 1 0 0 0 6 21h12a1 1 0 0 0 1-1.5L13.5 9V3M8 15h8",
  info: "M12 21a9 9 0 1 0 0-18 9 9 0 0 0 0 18ZM12 11v5.5M12 7.5v.3",
  list: "M8 6h12M8 12h12M8 18h12M4 6h.01M4 12h.01M4 18h.01",
  map: "M4 5h16v4H4zM4 11h9v3H4zM4 16h13v3H4z",
  pencil: "m4 20 1-4L16 5l3 3L8 19l-4 1ZM14 7l3 3",
  people: "M9 11a3.5 3.5 0 1 0 0-7 3.5 3.5 0 0 0 0 7ZM2.5 20a6.5 6.5 0 0 1 13 0M16 4.4a3.5 3.5 0 0 1 0 6.2M18.5 14.2a6.5 6.5 0 0 1 3 5.8",
  pin: "M9 4h6l-1 6 3 3H7l3-3-1-6ZM12 13v7",
  plug: "M9 3v5M15 3v5M6.5 8h11v3a5.5 5.5 0 0 1-11 0V8ZM12 16.5V21",
  pulse: "M3 12h4l2.5-7 5 14L17 12h4",
  refresh: "M20 11a8 8 0 1 0-2.3 6.3M20 5v6h-6",
  scissors: "M6 9a3 3 0 1 0 0-6 3 3 0 0 0 0 6ZM6 21a3 3 0 1 0 0-6 3 3 0 0 0 0 6ZM8.5 7.5 20 18M8.5 16.5 20 6",
  search: "M10.5 17a6.5 6.5 0 1 0 0-13 6.5 6.5 0 0 0 0 13ZM15.5 15.5 20 20",
  sliders: "M5 4v9M5 17v3M12 4v3M12 11v9M19 4v10M19 18v2M3 13h4M10 11h4M17 14h4",
  trash: "M5 7h14M9 7V4h6v3M7 7l1 13h8l1-13",
  undo: "M4 9h10a5.5 5.5 0 0 1 0 11h-4M4 9l4-4M4 9l4 4",
};

export function Icon({ name }) {
  return html`<svg class="icon" viewBox="0 0 24 24" aria-hidden="true" focusable="false">
    <path d=${PATHS[name] ?? PATHS.info} />
  </svg>`;
}
