// How full the window is: half a circle, with marks where it gets tight.
import { html } from "../lib/html.js";
import { share as shareText } from "../lib/format.js";

export const MARKS = [80, 90, 95];
const ARC = "M 16 100 A 84 84 0 0 1 184 100";

export const levelOf = (share) =>
  share === null || share === undefined
    ? "unknown"
    : share >= 95
      ? "critical"
      : share >= 90
        ? "warning"
        : share >= 80
          ? "caution"
          : "ok";

export function Gauge({ share, label, text }) {
  const level = levelOf(share);
  const filled = Math.max(0, Math.min(100, share ?? 0));
  return html`<div
    class="gauge ${level}"
    role="meter"
    aria-label=${label}
    aria-valuemin="0"
    aria-valuemax="100"
    aria-valuenow=${Math.round(filled)}
    aria-valuetext=${text}
  >
    <svg viewBox="0 0 200 112" aria-hidden="true">
      <path class="gauge-track" d=${ARC} pathLength="100" />
      <path class="gauge-zone caution" d=${ARC} pathLength="100" stroke-dasharray="0 80 10 100" />
      <path class="gauge-zone warning" d=${ARC} pathLength="100" stroke-dasharray="0 90 5 100" />
      <path class="gauge-zone critical" d=${ARC} pathLength="100" stroke-dasharray="0 95 5 100" />
      <path class="gauge-value" d=${ARC} pathLength="100" stroke-dasharray="${filled} 200" />
      ${MARKS.map((mark) => html`<${Mark} key=${mark} at=${mark} />`)}
      <text class="gauge-number" x="100" y="88" text-anchor="middle">${shareText(share)}</text>
      <text class="gauge-end" x="16" y="111.5" text-anchor="middle">0</text>
      <text class="gauge-end" x="184" y="111.5" text-anchor="middle">100</text>
    </svg>
  </div>`;
}

function Mark({ at }) {
  const angle = Math.PI * (1 - at / 100);
  const point = (radius) => [100 + radius * Math.cos(angle), 100 - radius * Math.sin(angle)];
  const [[x1, y1], [x2, y2], [x, y]] = [point(76), point(92), point(96)];
  return html`<g>
    <line class="gauge-mark" x1=${x1} y1=${y1} x2=${x2} y2=${y2} />
    <text class="gauge-label" x=${x} y=${y + 2.5} text-anchor="start">${at}</text>
  </g>`;
}
