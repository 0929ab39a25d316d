// A long list of rows of one height, of which only those in sight are drawn.
import { html, useEffect, useRef, useState } from "../lib/html.js";

const MARGIN = 6; // rows drawn beyond each edge

export function Windowed({ label, rows, rowHeight, height, draw, role = "list" }) {
  const frame = useRef(null);
  const [top, setTop] = useState(0);
  const [seen, setSeen] = useState(600);
  useEffect(() => {
    const observer = new ResizeObserver(([entry]) => setSeen(entry.contentRect.height));
    observer.observe(frame.current);
    return () => observer.disconnect();
  }, []);
  const first = Math.max(0, Math.floor(top / rowHeight) - MARGIN);
  const last = Math.min(rows.length, Math.ceil((top + seen) / rowHeight) + MARGIN);
  return html`<div
    ref=${frame}
    class="windowed"
    role=${role}
    aria-label=${label}
    tabindex="0"
    style=${{ maxHeight: height }}
    onScroll=${(event) => setTop(event.currentTarget.scrollTop)}
  >
    <div class="windowed-whole" style=${{ height: `${rows.length * rowHeight}px` }}>
      <div class="windowed-part" style=${{ transform: `translateY(${first * rowHeight}px)` }}>
        ${rows.slice(first, last).map((row, at) => draw(row, first + at))}
      </div>
    </div>
  </div>`;
}
