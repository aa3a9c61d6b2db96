// Charts over time. A missing sample is a gap in the line, never a zero.

import { html, useEffect, useRef } from "../core/dom.js";
import { bytes, duration, figure, known, moment, percent } from "../core/format.js";
import { Unknown } from "./text.js";

const HEIGHT = 148;
const COLOURS = 6;

/** Ticks at round numbers of bytes. */
const POWERS = [...Array(50).keys()].map((power) => 2 ** power);

const FORMATS = { B: bytes, "B/s": (value) => `${bytes(value)}/s`, ms: duration, ratio: percent };

function formatOf(unit) {
  return FORMATS[unit] || (unit === "1/s" ? (value) => `${figure(value)}/s` : figure);
}

/**
 * `times`: ms; `series`: [{label, unit, values}], values are null without a sample. `about`: a
 * tooltip of the title.
 */
export function Chart({ title, about, times, series }) {
  const box = useRef(null);
  const drawn = useRef(null);
  const shape = series.map(({ label }) => label).join("\n");
  useEffect(() => {
    let gone = false;
    const draw = async () => {
      const { default: uPlot } = await import("../../vendor/uplot.js");
      if (gone || !box.current) return;
      drawn.current?.destroy();
      drawn.current = new uPlot(
        options(uPlot, box.current, series),
        data(times, series),
        box.current,
      );
    };
    draw();
    const resized = new ResizeObserver(() =>
      drawn.current?.setSize({ width: box.current.clientWidth, height: HEIGHT }),
    );
    resized.observe(box.current);
    const scheme = matchMedia("(prefers-color-scheme: dark)");
    scheme.addEventListener("change", draw);
    const themed = new MutationObserver(draw);
    themed.observe(document.documentElement, { attributeFilter: ["data-theme"] });
    return () => {
      gone = true;
      resized.disconnect();
      themed.disconnect();
      scheme.removeEventListener("change", draw);
      drawn.current?.destroy();
      drawn.current = null;
    };
  }, [shape]);
  useEffect(() => drawn.current?.setData(data(times, series)), [times, series]);
  return html`<figure class="chart">
    <figcaption>
      <h3 title=${about}>${title}</h3>
      <ul class="legend">
        ${series.map((one, at) => html`<${Entry} one=${one} at=${at} />`)}
      </ul>
    </figcaption>
    <div ref=${box} class="plot" aria-hidden="true"></div>
  </figure>`;
}

function Entry({ one, at }) {
  const there = one.values.filter(known);
  const last = one.values.at(-1);
  const format = formatOf(one.unit);
  return html`<li>
    <span class="swatch series-${(at % COLOURS) + 1}" aria-hidden="true"></span>${one.label}
    ${" "}<strong>${known(last) ? format(last) : html`<${Unknown} why="no sample" />`}</strong>
    ${
      there.length > 1 &&
      html`<span class="hidden-label">
      between ${format(Math.min(...there))} and ${format(Math.max(...there))}
    </span>`
    }
  </li>`;
}

function data(times, series) {
  return [times.map((ms) => ms / 1000), ...series.map(({ values }) => values)];
}

function options(uPlot, box, series) {
  const colour = (name) => getComputedStyle(probe(box, name)).color;
  const unit = series[0]?.unit;
  const format = formatOf(unit);
  const incrs = unit?.startsWith("B") ? POWERS : undefined;
  const axis = {
    stroke: colour("ink-quiet"),
    grid: { stroke: colour("grid"), width: 1 },
    ticks: { show: false },
    font: "11px system-ui, sans-serif",
  };
  return {
    width: box.clientWidth,
    height: HEIGHT,
    legend: { show: false },
    cursor: { y: false, sync: { key: "overview" } },
    padding: [8, 28, 0, 0],
    scales: { y: { range: (_, low, high) => [Math.min(0, low ?? 0), high > 0 ? high * 1.1 : 1] } },
    axes: [
      { ...axis, size: 26, space: 70, values: (_, splits) => splits.map(clockFor(splits)) },
      {
        ...axis,
        incrs,
        size: 64,
        space: 34,
        values: (_, splits) => splits.map((value) => format(value)),
      },
    ],
    series: [
      {},
      ...series.map((one, at) => ({
        label: one.label,
        stroke: colour(`series-${(at % COLOURS) + 1}`),
        width: 1.5,
        spanGaps: false,
        points: { show: false },
      })),
    ],
  };
}

// A custom property keeps `light-dark(…)` as written; a computed colour does not.
function probe(box, name) {
  box.style.color = `var(--${name})`;
  return box;
}

// Seconds are shown if ticks are less than a minute apart.
function clockFor(splits) {
  const length = splits[1] - splits[0] < 60 ? 8 : 5;
  return (seconds) => moment(seconds * 1000).slice(11, 11 + length);
}
