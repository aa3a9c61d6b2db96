// Half messages: open transactions; resolution of those of this console's producer group.

import { call, fill } from "../core/api.js";
import { html } from "../core/dom.js";
import { useAsk } from "../core/hooks.js";
import { Action } from "../parts/action.js";
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
          find="Filter the list"
          rows=${answer.items}
          rowKey=${({ broker, half_offset: offset }) => `${broker}/${offset}`}
          empty="No transaction is open."
          columns=${[
            {
              key: "age_ms",
              title: "Age",
              num: true,
              cell: (row) => html`<${Duration} of=${row.age_ms} />`,
            },
            TOPIC,
            { key: "producer_group", title: "Producer group" },
            { key: "checks", title: "Checks", num: true },
            BROKER,
            { key: "half_offset", title: "Half offset", num: true },
            {
              key: "transaction_id",
              title: "Transaction",
              cell: (row) => html`<code class="break">${row.transaction_id}</code>`,
            },
            {
              key: "body",
              title: "Body preview",
              value: ({ message }) => message.body,
              cell: ({ message }) => html`<${Preview} message=${message} />`,
            },
            {
              key: "actions",
              title: "",
              fixed: true,
              cell: (row) => html`<${Ends} row=${row} done=${ask.refresh} />`,
            },
          ]}
        />`}
    <//>
  <//>`;
}

const THEIRS =
  "Only the producer group that started a transaction can end it; the console belongs to another group.";

function Ends({ row, done }) {
  const { id, topic, transaction_id: transaction, producer_group: group } = row;
  if (id === null) {
    return html`<span class="quiet small" title=${THEIRS}>
      its producer decides<span class="hidden-label">. ${THEIRS}</span>
    </span>`;
  }
  const end = (how) => () => call("POST", fill(`/v1/transactions/{id}/${how}`, { id }));
  return html`<div class="row-actions">
    <${Action}
      label="Commit"
      spoken=${`Commit ${transaction}`}
      title=${`Commit a transaction of ${topic}`}
      warning=${`The message ${transaction} is delivered to the groups that consume ${topic}, as if ${group} had committed it. This cannot be undone.`}
      name=${topic}
      send=${end("commit")}
      done=${done}
    />
    <${Action}
      label="Roll back"
      tone="danger"
      spoken=${`Roll back ${transaction}`}
      title=${`Roll back a transaction of ${topic}`}
      warning=${`The message ${transaction} is dropped, as if ${group} had rolled it back; it is never delivered to a group of ${topic}. This cannot be undone.`}
      name=${topic}
      send=${end("rollback")}
      done=${done}
    />
  </div>`;
}
