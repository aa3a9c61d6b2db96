// A page's heading: where it is, what it is called, what can be done with all of it.

import { html, useEffect } from "../core/dom.js";
import { link } from "../core/route.js";
import { Actions } from "./action.js";

/** `up`: [[parts, label], …] of the pages above. */
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
