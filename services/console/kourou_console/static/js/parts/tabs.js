// Tabs that are addresses of their own: each is a link, the one shown is current.

import { html } from "../core/dom.js";
import { link } from "../core/route.js";

/** `tabs`: [[name, label], …]; `base` is the page's parts, to which the name is added. */
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
