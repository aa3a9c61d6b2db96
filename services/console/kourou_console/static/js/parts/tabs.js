// Tabs with their own addresses: each is a link, the selected one is current.

import { html } from "../core/dom.js";
import { link } from "../core/route.js";

/** `tabs`: [[name, label], …]; `base` is the parts of the page's address, followed by the name. */
export function Tabs({ label, base, tabs, current }) {
  return html`<nav class="tabs" aria-label=${label}>
    ${tabs.map(
      ([name, text]) =>
        html`<a href=${link([...base, name])} aria-current=${name === current ? "page" : undefined}
          >${text}</a
        >`,
    )}
  </nav>`;
}
