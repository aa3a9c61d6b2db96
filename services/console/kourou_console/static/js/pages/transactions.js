// Half messages: transactions that nobody has resolved yet.

import { html } from "../core/dom.js";
import { useAsk } from "../core/hooks.js";
import { BROKER, TOPIC } from "../parts/columns.js";
import { Preview } from "../parts/messages_table.js";
import { Page } from "../parts/page.js";
import { Panel } from "../parts/panel.js";
import { Table } from "../parts/table.js";
import { Duration } from "../parts/text.js";

export default function Transactions() {
  const ask = useAsk("/v1/transactions");
  return html`<${Page} title="Transactions">
    <${Panel} title="Open transactions" ask=${ask} number=${ask.answer?.total}>
      ${(answer) =>
        html`<${Table}
          label="Open transactions"
          find="Filter what is listed"
          rows=${answer.items}
          empty="No transaction is open."
          columns=${[
            {
              key: "age_ms",
              title: "Open for",
              num: true,
              cell: (row) => html`<${Duration} of=${row.age_ms} />`,
            },
            TOPIC,
            { key: "producer_group", title: "Producer group" },
            { key: "checks", title: "Check-backs", num: true },
            BROKER,
            { key: "half_offset", title: "Half offset", num: true },
            {
              key: "transaction_id",
              title: "Transaction",
              cell: (row) => html`<code class="break">${row.transaction_id}</code>`,
            },
            {
              key: "body",
              title: "Begins with",
              wide: true,
              value: ({ message }) => message.body,
              cell: ({ message }) => html`<${Preview} message=${message} />`,
            },
          ]}
        />`}
    <//>
  <//>`;
}
