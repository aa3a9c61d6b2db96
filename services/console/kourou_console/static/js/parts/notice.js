// Notices above a panel's content, and messages that disappear.

import { html, useEffect, useState } from "../core/dom.js";

export function Notice({ tone = "", role, children }) {
  return html`<div class="notice ${tone}" role=${role}>${children}</div>`;
}

/** An error: what happened, what to do, its code. */
export function Refusal({ problem }) {
  if (!problem) return null;
  return html`<${Notice} tone="bad" role="alert">
    <strong>${problem.title || "The request failed"}</strong>
    ${problem.detail && problem.detail !== problem.title && html` — ${problem.detail}`}
    ${problem.hint && html`<div>What to do: ${problem.hint}</div>`}
    ${
      problem.code_name &&
      html`<div class="quiet small">${problem.code_name} (${problem.code})</div>`
    }
  <//>`;
}

/** What could not be requested. Without this the list would look complete. */
export function Gaps({ missing = [] }) {
  if (!missing.length) return null;
  return html`<${Notice} tone="warn" role="status">
    <strong>Incomplete.</strong> ${" "}
    ${
      missing.length === 1
        ? html`${missing[0].what}: ${missing[0].why}`
        : html`<ul>
          ${missing.map(({ what, why }) => html`<li>${what}: ${why}</li>`)}
        </ul>`
    }
  <//>`;
}

/** The sentences of a preview or of a completed change. */
export function Says({ sentences = [], tone = "" }) {
  if (!sentences.length) return null;
  return html`<${Notice} tone=${tone} role="status">
    ${
      sentences.length === 1
        ? sentences[0]
        : html`<ul>
          ${sentences.map((sentence) => html`<li>${sentence}</li>`)}
        </ul>`
    }
  <//>`;
}

const SHOWN_MS = 6000;
let showToast = () => {};

/** Shows the result of an action in the corner for a few seconds. */
export function toast(text) {
  showToast(text);
}

export function Toasts() {
  const [shown, setShown] = useState([]);
  useEffect(() => {
    showToast = (text) => {
      const entry = { text };
      setShown((all) => [...all, entry]);
      setTimeout(() => setShown((all) => all.filter((one) => one !== entry)), SHOWN_MS);
    };
  }, []);
  return html`<div class="toasts" role="status" aria-live="polite">
    ${shown.map(({ text }) => html`<${Notice} tone="good">${text}<//>`)}
  </div>`;
}
