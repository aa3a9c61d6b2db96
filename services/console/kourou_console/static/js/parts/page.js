// A page's heading: its location, its title, and the actions for the whole page.

import { html, useEffect } from "../core/dom.js";
import { link } from "../core/route.js";
import { Actions } from "./action.js";

/** `up`: [[parts, label], …] of the parent pages. */
export function Page({ title, up = [], actions, badges, children }) {
  useEffect(() => {
    document.title = `${title} · Kourou`;
  }, [title]);
  return html`<${Actions}>
    <div class="page-head">
      ${
        up.length > 0 &&
        html`<nav class="crumbs" aria-label="Breadcrumb">
        ${up.map(([parts, label]) => html`<a href=${link(parts)}>${label}</a> / `)}
      </nav>`
      }
      <h1 tabindex="-1">${title}</h1>
      ${badges}
      <div class="actions">${actions}</div>
    </div>
    <div class="stack">${children}</div>
  <//>`;
}
