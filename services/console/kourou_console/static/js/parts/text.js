// Small pieces of text: unknown values, badges, times, links, names.

import { html } from "../core/dom.js";
import { bytes, count, duration, known, moment, time } from "../core/format.js";
import { link } from "../core/route.js";

/** An unknown value, visible and for screen readers. */
export function Unknown({ why = "unknown" }) {
  return html`<span class="missing-value" title=${why}
    ><span aria-hidden="true">—</span><span class="hidden-label">${why}</span></span
  >`;
}

/** `format(value)`, or Unknown. */
export function Value({ of, format = count, why }) {
  return known(of) ? html`${format(of)}` : html`<${Unknown} why=${why} />`;
}

export const Count = ({ of, why }) => html`<${Value} of=${of} why=${why} />`;
export const Bytes = ({ of, why }) => html`<${Value} of=${of} format=${bytes} why=${why} />`;
export const Duration = ({ of, why }) => html`<${Value} of=${of} format=${duration} why=${why} />`;

/** A point in time; the full date is in the tooltip. */
export function Time({ ms, why }) {
  if (!known(ms)) return html`<${Unknown} why=${why} />`;
  return html`<time class="nowrap" datetime=${new Date(ms).toISOString()} title=${moment(ms)}
    >${time(ms)}</time
  >`;
}

export function Badge({ tone = "", children }) {
  return html`<span class="badge ${tone}">${children}</span>`;
}

/** A number of things; their names are in the tooltip. */
export function Several({ names }) {
  return html`<span title=${names.join(", ")}>${count(names.length)}</span>`;
}

/** true, false or unknown, as words. */
export function Flag({ of, yes = "yes", no = "no", bad = "" }) {
  if (!known(of)) return html`<${Unknown} />`;
  const tone = bad === (of ? "yes" : "no") ? "bad" : "";
  return html`<${Badge} tone=${tone}>${of ? yes : no}<//>`;
}

export function Link({ to, query, children, ...rest }) {
  return html`<a href=${link(to, query)} ...${rest}>${children}</a>`;
}

export const TopicLink = ({ topic }) =>
  html`<${Link} to=${["topics", topic]} class="break">${topic}<//>`;
export const GroupLink = ({ group }) =>
  html`<${Link} to=${["groups", group]} class="break">${group}<//>`;
export const BrokerLink = ({ broker }) =>
  html`<${Link} to=${["cluster", broker]} class="nowrap">${broker}<//>`;
export const MessageLink = ({ id, label = id, query }) =>
  html`<${Link} to=${["messages", id]} query=${query} class="mono break">${label}<//>`;

/** `[["Name", value], …]`; undefined values are omitted, null values are unknown. */
export function Facts({ of }) {
  return html`<dl class="facts">
    ${of
      .filter(([, value]) => value !== undefined)
      .map(
        ([name, value]) =>
          html`<dt>${name}</dt>
            <dd>${value === null ? html`<${Unknown} />` : value === "" ? "(empty)" : value}</dd>`,
      )}
  </dl>`;
}

/** Tiles of metrics: `[["Messages in", "12/s", note?, tooltip?], …]`. */
export function Figures({ of }) {
  return html`<div class="scroll">
    <dl class="figures">
      ${of.map(
        ([name, value, note, about]) =>
          html`<div class="figure" title=${about}>
            <dt>${name}</dt>
            <dd>${value === null ? html`<${Unknown} />` : value}</dd>
            ${note && html`<dd>${note}</dd>`}
          </div>`,
      )}
    </dl>
  </div>`;
}
