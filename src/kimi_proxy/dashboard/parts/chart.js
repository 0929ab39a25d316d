// Lines over time, painted by uPlot, which is loaded when the first of them is shown.
import { html, useEffect, useRef, useState } from "../lib/html.js";
import { clock, when } from "../lib/format.js";
import { useSignal } from "../lib/signal.js";
import { colour, painted } from "../lib/theme.js";

const HEIGHT_REM = 11.5;
const LONE_S = 30; // on either side of a single point, which has no range of its own
const AWAY = { left: -10, top: -10 }; // where uPlot's cursor points at nothing

/**
 * `times`: moments in ms, ascending; `series`: `{label, values, colour, isDashed}` with null where nothing is known;
 * `format(value)`. The legend shows the newest values, or those under the pointer, or those that arrow keys lead to.
 */
export function Chart({ label, times, series, format }) {
  const frame = useRef(null);
  const plot = useRef(null);
  const [at, setAt] = useState(null);
  const look = useSignal(painted);
  const height = Math.round(HEIGHT_REM * rem());
  const shape = series.map((each) => each.label).join("|") + look;
  const newest = useRef(null);
  newest.current = columns(times, series); // uPlot takes a while to come: what it is given then is what is known then

  useEffect(() => {
    const place = frame.current;
    let isGone = false;
    import("../vendor/uplot.mjs").then(({ default: Plot }) => {
      if (isGone || !place.isConnected) return; // the view may be gone before it came
      const options = { ...settings(Plot, series, format, setAt), width: place.clientWidth, height };
      plot.current = new Plot(options, newest.current, place);
    });
    const observer = new ResizeObserver(([entry]) => plot.current?.setSize({ width: entry.contentRect.width, height }));
    observer.observe(place);
    return () => {
      isGone = true;
      observer.disconnect();
      plot.current?.destroy();
      plot.current = null;
    };
  }, [shape]);
  useEffect(() => plot.current?.setData(newest.current), [times, series]);

  const last = times.length - 1;
  const shown = at !== null && at <= last ? at : last;
  const go = (place) => {
    setAt(place);
    plot.current?.setCursor(place === null ? AWAY : { left: plot.current.valToPos(times[place] / 1000, "x"), top: 0 });
  };
  const step = (event) => {
    const to = { ArrowLeft: shown - 1, ArrowRight: shown + 1, Home: 0, End: last, Escape: null }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    go(to === null ? null : Math.max(0, Math.min(last, to)));
  };
  const spoken = [when(times[shown]), ...series.map((each) => `${each.label} ${format(each.values[shown])}`)].join(", ");
  return html`<figure class="chart" aria-label=${label}>
    <figcaption>
      ${series.map(
        (each) => html`<span key=${each.label} class="chart-key">
          <span class="chart-line ${each.isDashed ? "dashed" : ""}" style=${{ borderColor: `var(--${each.colour})` }}></span>
          ${each.label} <strong class="number">${format(each.values[shown])}</strong>
        </span>`,
      )}
      <span class="chart-when">${shown >= 0 ? when(times[shown]) : ""}</span>
    </figcaption>
    <div
      ref=${frame}
      class="chart-frame"
      style=${{ minHeight: `${height}px` }}
      role="slider"
      tabindex="0"
      aria-label=${label}
      aria-valuemin="0"
      aria-valuemax=${last}
      aria-valuenow=${shown}
      aria-valuetext=${spoken}
      onKeyDown=${step}
      onBlur=${() => go(null)}
    ></div>
  </figure>`;
}

/** What a canvas knows nothing of: the size of the type around it. */
const rem = () => parseFloat(getComputedStyle(document.documentElement).fontSize);

const columns = (times, series) => [times.map((ms) => ms / 1000), ...series.map((each) => each.values)];

function settings(Plot, series, format, setAt) {
  const axis = {
    stroke: colour("soft"),
    font: `${Math.round(0.75 * rem())}px system-ui, sans-serif`,
    grid: { stroke: colour("line"), width: 1 },
    ticks: { show: false },
  };
  return {
    legend: { show: false },
    padding: [8, 26, 0, 0],
    cursor: { y: false, points: { size: 7 }, drag: { x: false, y: false } },
    hooks: { setCursor: [(plot) => setAt(plot.cursor.idx ?? null)] },
    scales: { x: { range: timesShown }, y: { range: (_, low, high) => [0, high > 0 ? high * 1.08 : 1] } },
    axes: [
      {
        ...axis,
        size: 1.9 * rem(),
        space: 6 * rem(),
        values: (_, ticks) => ticks.map((tick) => clock(tick * 1000)),
        grid: { show: false },
      },
      { ...axis, size: 3.9 * rem(), values: (_, ticks) => ticks.map(format) },
    ],
    series: [
      {},
      ...series.map((each) => ({
        stroke: colour(each.colour),
        width: 2,
        dash: each.isDashed ? [5, 5] : undefined,
        fill: each.isDashed ? undefined : transparent(colour(each.colour)),
        points: { show: each.values.length < 40 && !each.isDashed, size: 5 },
        spanGaps: true,
        paths: Plot.paths.linear(),
      })),
    ],
  };
}

// To a single point uPlot gives a whole day.
const timesShown = (plot, from, to) => (plot.data[0].length > 1 && to > from ? [from, to] : [from - LONE_S, from + LONE_S]);

const transparent = (hex) => `${hex}1f`;
