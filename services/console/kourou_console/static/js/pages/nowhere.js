// The page for an unknown address, with links to other pages.

import { html } from "../core/dom.js";
import { Page } from "../parts/page.js";
import { Plain } from "../parts/panel.js";
import { Link } from "../parts/text.js";

const ONWARD = [
  [[], "Overview", "throughput and alarms"],
  [["topics"], "Topics", "queues, messages and groups"],
  [["groups"], "Groups", "consumers and lag"],
  [["messages"], "Messages", "search and latest"],
];

export default function Nowhere() {
  return html`<${Page} title="Page not found">
    <${Plain} title="Go to">
      <div class="padded">
        ${ONWARD.map(([to, label, about]) => html`<p><${Link} to=${to}>${label}<//>: ${about}</p>`)}
      </div>
    <//>
  <//>`;
}
