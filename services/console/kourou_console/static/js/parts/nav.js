// The navigation on the left; a drawer on narrow screens.

import { html, useEffect } from "../core/dom.js";
import { link } from "../core/route.js";

const CHAPTERS = [
  [
    "Watch",
    [
      ["", "Overview"],
      ["cluster", "Cluster"],
      ["name-servers", "Name servers"],
    ],
  ],
  [
    "Messages",
    [
      ["topics", "Topics"],
      ["groups", "Groups"],
      ["producers", "Producers"],
      ["messages", "Messages"],
      ["trace", "Trace"],
    ],
  ],
  [
    "Pending",
    [
      ["dead-letters", "Dead letters"],
      ["delayed", "Delayed"],
      ["transactions", "Transactions"],
      ["leases", "Leases"],
    ],
  ],
  [
    "Processing",
    [
      ["filters", "Filters"],
      ["spark", "Spark"],
    ],
  ],
  [
    "Control",
    [
      ["history", "Control history"],
      ["audit", "Audit"],
    ],
  ],
];

export function Nav({ current, open, close }) {
  useEffect(() => {
    if (!open) return undefined;
    const pressed = (event) => event.key === "Escape" && close();
    window.addEventListener("keydown", pressed);
    return () => window.removeEventListener("keydown", pressed);
  }, [open]);
  return html`<nav id="nav" class=${`nav ${open ? "open" : ""}`} aria-label="Pages">
    <a class="brand" href="#/"><img src="/favicon.svg" alt="" /> Kourou</a>
    ${CHAPTERS.map(
      ([title, pages]) =>
        html`<h2>${title}</h2>
          <ul>
            ${pages.map(
              ([name, label]) =>
                html`<li>
                  <a
                    href=${name ? link([name]) : "#/"}
                    aria-current=${current === name ? "page" : undefined}
                    onClick=${close}
                    >${label}</a
                  >
                </li>`,
            )}
          </ul>`,
    )}
    <h2>Reference</h2>
    <ul>
      <li><a href="/docs">HTTP API</a></li>
    </ul>
  </nav>`;
}
