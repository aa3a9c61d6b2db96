// An address that is none of the console's: where to go from there.

import { html } from "../core/dom.js";
import { Page } from "../parts/page.js";
import { Plain } from "../parts/panel.js";
import { Link } from "../parts/text.js";

const ONWARD = [
  [[], "Overview", "what flows, and alarms"],
  [["topics"], "Topics", "their queues, messages and groups"],
  [["groups"], "Groups", "who consumes, and how far it is"],
  [["messages"], "Messages", "looking them up"],
];

export default function Nowhere() {
  return html`<${Page} title="No such page">
    <${Plain} title="Go on to">
      <div class="padded">
        ${ONWARD.map(([to, label, about]) => html`<p><${Link} to=${to}>${label}<//>: ${about}</p>`)}
      </div>
    <//>
  <//>`;
}
