// Connected producer groups and their clients.

import { html } from "../core/dom.js";
import { useAsk } from "../core/hooks.js";
import { Page } from "../parts/page.js";
import { Panel } from "../parts/panel.js";
import { Table } from "../parts/table.js";
import { Time } from "../parts/text.js";

export default function Producers() {
  const ask = useAsk("/v1/producers");
  return html`<${Page} title="Producers">
    <${Panel} title="Connected producers" ask=${ask} number=${ask.answer?.total}>
      ${(answer) =>
        html`<${Table}
          label="Connected producers"
          find="Filter producers"
          rows=${answer.items}
          empty="No producer is connected."
          columns=${[
            { key: "group", title: "Group" },
            {
              key: "client",
              title: "Client",
              cell: (row) => html`<code class="break">${row.client}</code>`,
            },
            { key: "address", title: "Address", cell: (row) => html`<code>${row.address}</code>` },
            { key: "language", title: "Language" },
            { key: "version", title: "Version" },
            {
              key: "heard_ms",
              title: "Last heartbeat",
              cell: (row) => html`<${Time} ms=${row.heard_ms} />`,
            },
          ]}
        />`}
    <//>
  <//>`;
}
