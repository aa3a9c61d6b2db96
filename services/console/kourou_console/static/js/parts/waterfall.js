// The trace of a message: one bar for each span with its component, start and duration.

import { html } from "../core/dom.js";
import { duration, known } from "../core/format.js";
import { useAsk } from "../core/hooks.js";
import { Panel } from "./panel.js";
import { Scroll } from "./scroll.js";
import { Badge, Duration, Time } from "./text.js";

const TICKS = 4;

export function Waterfall({ id, query }) {
  const ask = useAsk("/v1/messages/{id}/trace", { id }, { topic: query.topic }, { live: false });
  return html`<${Panel} title="Trace" ask=${ask} number=${ask.answer?.total}>
    ${({ spans }) =>
      spans.length
        ? html`<${Chart} spans=${spans} />`
        : html`<p class="empty">No trace found. Message tracing is enabled in the client.</p>`}
  <//>`;
}

function Chart({ spans }) {
  const timed = spans.filter(({ start_ms: start }) => known(start));
  const begin = Math.min(...timed.map(({ start_ms: start }) => start));
  const ends = timed.map((span) => span.start_ms + (span.duration_ms ?? 0));
  const whole = Math.max(Math.max(...ends) - begin, 1);
  const ticks = [...Array(TICKS + 1).keys()].map((at) => (whole * at) / TICKS);
  return html`<${Scroll} label="Waterfall">
    <table class="waterfall">
      <caption class="hidden-label">
        Spans of the trace, by start time
      </caption>
      <thead>
        <tr>
          <th scope="col">What</th>
          <th scope="col">Who</th>
          <th scope="col">Began</th>
          <th scope="col" class="num">Took</th>
          <th scope="col" class="lane">
            <span class="hidden-label">Bar</span>
            <div class="ticks" aria-hidden="true">
              ${ticks.map((ms) => html`<span>${duration(ms)}</span>`)}
            </div>
          </th>
        </tr>
      </thead>
      <tbody>
        ${laidOut(spans).map((row) => html`<${Row} row=${row} begin=${begin} whole=${whole} />`)}
      </tbody>
    </table>
  <//>`;
}

function Row({ row: { span, depth }, begin, whole }) {
  const { start_ms: start, duration_ms: took } = span;
  return html`<tr>
    <td>
      <span class="nowrap" style=${{ paddingLeft: `${depth * 14}px` }}>
        <${Badge} tone=${span.ok === false ? "bad" : ""}>${span.what}<//>
      </span>
    </td>
    <td class="who">
      <span class="break">${span.who}</span>
      ${span.note && html`<div class="quiet small break">${span.note}</div>`}
    </td>
    <td><${Time} ms=${start} /></td>
    <td class="num"><${Duration} of=${took} why="no end recorded" /></td>
    <td class="lane">
      ${
        known(start) &&
        html`<div
        class=${`bar-of-span ${span.what} ${span.ok === false ? "failed" : ""}`}
        style=${{
          marginLeft: `${((start - begin) / whole) * 99}%`,
          width: `${((took ?? 0) / whole) * 99}%`,
        }}
      ></div>`
      }
    </td>
  </tr>`;
}

/** Spans after their parents, siblings by their start. Pure. */
export function laidOut(spans) {
  const ids = new Set(spans.map(({ id }) => id));
  const of = (parent) =>
    spans
      .filter((span) => (ids.has(span.parent) ? span.parent === parent : parent === null))
      .sort((left, right) => (left.start_ms ?? Infinity) - (right.start_ms ?? Infinity));
  const rows = [];
  const walk = (parent, depth) => {
    for (const span of of(parent)) {
      if (rows.some((row) => row.span === span)) continue;
      rows.push({ span, depth });
      walk(span.id, depth + 1);
    }
  };
  walk(null, 0);
  return rows;
}
