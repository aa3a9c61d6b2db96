// A panel: one question to the API, its answer, when that was so, and what is wrong with it.

import { html } from "../core/dom.js";
import { count, known, time } from "../core/format.js";
import { Gaps, Notice, Refusal } from "./notice.js";

/**
 * `ask` is what useAsk gave; `children` a function of the answer. `tools` stand in the heading.
 * `number` is shown behind the title.
 */
export function Panel({ title, ask, tools, number, children }) {
  const { answer, problem } = ask;
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
    <${Refusal} problem=${problem} />
    ${answer && html`<${Gaps} missing=${answer.missing} />`}
    ${answer ? children(answer) : !problem && html`<p class="loading" role="status">Loading …</p>`}
    ${answer?.truncated && html`<${Cut} answer=${answer} />`}
  </section>`;
}

/** A panel that asks nothing itself. */
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
