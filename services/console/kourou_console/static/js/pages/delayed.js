// Delayed messages: by level, one by one.

import { html } from "../core/dom.js";
import { useAsk } from "../core/hooks.js";
import { BROKER } from "../parts/columns.js";
import { Preview } from "../parts/messages_table.js";
import { Page } from "../parts/page.js";
import { Panel } from "../parts/panel.js";
import { Table } from "../parts/table.js";
import { Duration, MessageLink, Time, TopicLink } from "../parts/text.js";

export default function Delayed() {
  const ask = useAsk("/v1/delayed");
  return html`<${Page} title="Delayed">
    <${Panel} title="By level" ask=${ask}>
      ${(answer) =>
        html`<${Table}
          label="By level"
          rows=${answer.levels.filter(({ waiting }) => waiting !== 0)}
          empty="No delayed messages."
          columns=${[
            BROKER,
            { key: "level", title: "Level", num: true },
            {
              key: "delay_ms",
              title: "Delay",
              num: true,
              cell: (row) => html`<${Duration} of=${row.delay_ms} />`,
            },
            { key: "waiting", title: "Messages", num: true },
          ]}
        />`}
    <//>
    <${Panel} title="Messages" ask=${ask} number=${ask.answer?.total}>
      ${(answer) =>
        html`<${Table}
          label="Delayed messages"
          find="Filter the list"
          rows=${answer.items}
          empty="No delayed messages."
          columns=${[
            { key: "due_ms", title: "Due", cell: (row) => html`<${Time} ms=${row.due_ms} />` },
            {
              key: "topic",
              title: "For topic",
              cell: ({ topic }) => html`<${TopicLink} topic=${topic} />`,
            },
            { key: "level", title: "Level", num: true },
            {
              key: "message",
              title: "Message",
              value: ({ message }) => message.id,
              // Until it is due it is stored in another topic, where it cannot be found by this ID.
              cell: ({ message }) =>
                html`<${MessageLink} id=${message.offset_id} label=${message.id} />`,
            },
            {
              key: "stored_ms",
              title: "Stored",
              value: ({ message }) => message.stored_ms,
              cell: ({ message }) => html`<${Time} ms=${message.stored_ms} />`,
            },
            {
              key: "body",
              title: "Body preview",
              wide: true,
              value: ({ message }) => message.body,
              cell: ({ message }) => html`<${Preview} message=${message} />`,
            },
          ]}
        />`}
    <//>
  <//>`;
}
