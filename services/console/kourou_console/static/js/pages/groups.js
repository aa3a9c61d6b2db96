// Consumer groups: consumers, lag, dead letters; creation of groups.

import { html, useState } from "../core/dom.js";
import { useAsk } from "../core/hooks.js";
import { PutGroup, leftOf } from "../parts/group_actions.js";
import { Page } from "../parts/page.js";
import { Panel } from "../parts/panel.js";
import { Table } from "../parts/table.js";
import { Badge, Count, Flag, GroupLink, Link, Several, Unknown } from "../parts/text.js";

export default function Groups() {
  const [system, setSystem] = useState(false);
  const ask = useAsk("/v1/groups", {}, { system });
  return html`<${Page} title="Groups" actions=${html`<${PutGroup} label="Add or update" done=${ask.refresh} />`}>
    <${Panel} title="Consumer groups" ask=${ask} number=${ask.answer?.total}>
      ${(answer) =>
        html`<${Table}
          label="Consumer groups"
          find="Filter groups"
          rows=${answer.items}
          empty="No group yet."
          tools=${html`<label class="check">
            <input type="checkbox" checked=${system} onChange=${() => setSystem(!system)} />
            System groups
          </label>`}
          columns=${[
            {
              key: "group",
              title: "Group",
              wide: true,
              cell: ({ group, system: own }) =>
                html`<${GroupLink} group=${group} /> ${own && html`<${Badge}>system<//>`}`,
            },
            { key: "members", title: "Consumers", num: true },
            {
              key: "model",
              title: "Model",
              cell: ({ model }) =>
                model?.toLowerCase() || html`<${Unknown} why="no consumer is connected" />`,
            },
            { key: "lag_messages", title: "Lag", num: true },
            {
              key: "dead_letters",
              title: "Dead letters",
              num: true,
              cell: ({ group, dead_letters: dead }) =>
                dead > 0
                  ? html`<${Link} to=${["dead-letters", group]}><${Count} of=${dead} /><//>`
                  : html`<${Count} of=${dead} />`,
            },
            {
              key: "consume_enabled",
              title: "Consumption enabled",
              cell: (row) => html`<${Flag} of=${row.consume_enabled} bad="no" />`,
            },
            { key: "attempts", title: "Max retries", num: true },
            {
              key: "brokers",
              title: "Brokers",
              num: true,
              value: (row) => row.brokers.length,
              cell: ({ brokers }) => html`<${Several} names=${brokers} />`,
            },
            {
              key: "configured",
              title: "Configured",
              cell: (row) =>
                row.configured
                  ? "yes"
                  : html`<span class="quiet">${leftOf(row, answer.missing)}</span>`,
            },
          ]}
        />`}
    <//>
  <//>`;
}
