// A message's body: as text, as JSON, as bytes.

import { asHex, asJson, asText } from "../core/bytes.js";
import { html, useState } from "../core/dom.js";
import { bytes, known } from "../core/format.js";
import { Notice } from "./notice.js";

/** `data`: Uint8Array; `size`: of the whole body, if `data` is only its beginning; null: unknown. */
export function Body({ data, size = data.length, cut = data.length < size }) {
  const text = asText(data, cut);
  const json = cut ? null : asJson(text);
  const [wanted, setWanted] = useState(null);
  const kinds = [
    ["json", "JSON", json],
    ["text", "Text", text],
    ["hex", "Hex", asHex(data)],
  ];
  const there = kinds.filter(([, , shown]) => shown !== null);
  const [kind, , shown] = there.find(([name]) => name === wanted) || there[0];
  return html`
    <div class="tabs" role="tablist" aria-label="Body as">
      ${there.map(
        ([name, label]) =>
          html`<button
            type="button"
            role="tab"
            aria-selected=${name === kind}
            onClick=${() => setWanted(name)}
          >
            ${label}
          </button>`,
      )}
    </div>
    ${
      cut &&
      html`<${Notice} tone="warn">The first ${bytes(data.length)} of ${known(size) ? bytes(size) : "more"} shown.<//>`
    }
    ${
      data.length === 0
        ? html`<p class="empty">The body is empty.</p>`
        : html`<pre tabindex="0" aria-label=${`Body as ${kind}`}>${shown}</pre>`
    }
  `;
}
