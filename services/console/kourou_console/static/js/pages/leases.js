// Leases: groups whose consumers receive messages through this gateway.

import { call, fill } from "../core/api.js";
import { html } from "../core/dom.js";
import { useAsk } from "../core/hooks.js";
import { Action } from "../parts/action.js";
import { GROUP } from "../parts/columns.js";
import { Page } from "../parts/page.js";
import { Panel } from "../parts/panel.js";
import { Table } from "../parts/table.js";

export default function Leases() {
  const ask = useAsk("/v1/leases");
  return html`<${Page} title="Leases">
    <${Panel} title="Groups that consume over HTTP" ask=${ask} number=${ask.answer?.total}>
      ${(answer) =>
        html`<${Table}
          label="Groups that consume over HTTP"
          rows=${answer.items}
          rowKey=${({ group }) => group}
          empty="No group consumes over HTTP."
          columns=${[
            GROUP,
            {
              key: "topics",
              title: "Topics",
              value: ({ topics }) => topics.map(({ topic }) => topic).join(", "),
            },
            { key: "queues", title: "Queues", num: true },
            {
              key: "ready",
              title: "Ready",
              num: true,
              value: ({ topics }) => topics.reduce((sum, { ready }) => sum + ready, 0),
            },
            { key: "leased", title: "Leased", num: true },
            { key: "receiving", title: "Waiting requests", num: true },
            {
              key: "leave",
              title: "",
              fixed: true,
              cell: ({ group }) =>
                html`<${Action}
                  label="Leave"
                  spoken=${`Leave ${group}`}
                  tone="danger"
                  title=${`Leave ${group}`}
                  warning="This gateway leaves the group. Leased messages are redelivered to other consumers."
                  send=${() => call("DELETE", fill("/v1/groups/{group}/leases", { group }))}
                  done=${ask.refresh}
                />`,
            },
          ]}
        />`}
    <//>
  <//>`;
}
