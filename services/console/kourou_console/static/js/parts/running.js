// The running information of one consumer, as reported by it.

import { html } from "../core/dom.js";
import { rate } from "../core/format.js";
import { useAsk } from "../core/hooks.js";
import { Panel } from "./panel.js";
import { Table } from "./table.js";
import { Duration, Flag, Time, TopicLink, Value } from "./text.js";

export function Running({ group, client }) {
  const ask = useAsk(
    "/v1/groups/{group}/members/{client}/running",
    { group, client },
    { stacks: true },
    { live: false },
  );
  const speed = (key) => (row) => html`<${Value} of=${row[key]} format=${rate} />`;
  const topic = {
    key: "topic",
    title: "Topic",
    cell: (row) => html`<${TopicLink} topic=${row.topic} />`,
  };
  return html`<${Panel} title=${`Member ${client}`} ask=${ask}>
    ${(answer) => html`
      <${Table}
        label="Assigned queues"
        titled
        rows=${answer.queues}
        empty="No assigned queues."
        columns=${[
          topic,
          { key: "broker", title: "Broker" },
          { key: "queue", title: "Queue", num: true },
          { key: "committed", title: "Committed", num: true },
          { key: "cached", title: "Cached", num: true },
          { key: "locked", title: "Locked", cell: (row) => html`<${Flag} of=${row.locked} />` },
          {
            key: "last_pulled_ms",
            title: "Last pulled",
            cell: (row) => html`<${Time} ms=${row.last_pulled_ms} />`,
          },
          {
            key: "last_consumed_ms",
            title: "Last consumed",
            cell: (row) => html`<${Time} ms=${row.last_consumed_ms} />`,
          },
        ]}
      />
      <${Table}
        label="Rates"
        titled
        rows=${answer.rates}
        empty="No rates yet."
        columns=${[
          topic,
          { key: "pulled_per_s", title: "Pulled", num: true, cell: speed("pulled_per_s") },
          { key: "consumed_per_s", title: "Consumed", num: true, cell: speed("consumed_per_s") },
          { key: "failed_per_s", title: "Failed", num: true, cell: speed("failed_per_s") },
          { key: "failed_messages", title: "Failed (total)", num: true },
          {
            key: "consume_ms",
            title: "Handler time",
            num: true,
            cell: (row) => html`<${Duration} of=${row.consume_ms} />`,
          },
        ]}
      />
      ${answer.stack && html`<div class="padded"><h3>Stack</h3><pre tabindex="0" aria-label="Stack">${answer.stack}</pre></div>`}
    `}
  <//>`;
}
