// A panel: one request to the API, its response, the time, and the error if it failed.

import { html } from "../core/dom.js";
import { count, known, time } from "../core/format.js";
import { Gaps, Notice, Refusal } from "./notice.js";

/**
 * `ask` is the result of useAsk; `children` a function of the response. `tools` are shown in the
 * heading. `number` is shown after the title. `follows`: a panel above it has the same request and
 * shows its errors.
 */
export function Panel({ title, ask, tools, number, follows, children }) {
  const { answer, problem } = ask;
  if (follows && problem && !answer) return null;
  return html`<section class="panel" aria-label=${title} aria-busy=${ask.loading}>
    <header>
      <h2>${title}</h2>
      ${known(number) && html`<span class="quiet num">${count(number)}</span>`} ${tools}
      <div class="right">
        <${AsOf} answer=${answer} stale=${Boolean(problem)} />
        <button
          type="button"
          class="plain compact"
          onClick=${ask.refresh}
          aria-label=${`Refresh ${title}`}
          title="Refresh"
        >
          <span aria-hidden="true">↻</span>
        </button>
      </div>
    </header>
    ${!follows && html`<${Refusal} problem=${problem} />`}
    ${!follows && answer && html`<${Gaps} missing=${answer.missing} />`}
    ${answer ? children(answer) : !problem && html`<p class="loading" role="status">Loading …</p>`}
    ${answer?.truncated && html`<${Cut} answer=${answer} />`}
  </section>`;
}

/** A panel without a request of its own. */
export function Plain({ title, tools, children }) {
  return html`<section class="panel" aria-label=${title}>
    <header>
      <h2>${title}</h2>
      <div class="right">${tools}</div>
    </header>
    ${children}
  </section>`;
}

function AsOf({ answer, stale }) {
  if (!known(answer?.as_of_ms)) return null;
  return html`<span class="as-of">
    as of ${time(answer.as_of_ms).replace(/\.\d+$/, "")}${stale ? " (not current)" : ""}
  </span>`;
}

function Cut({ answer }) {
  const { items = [], total } = answer;
  return html`<${Notice} tone="warn" role="status">
    Showing ${count(items.length)} of ${known(total) ? count(total) : "more"}.
  <//>`;
}
