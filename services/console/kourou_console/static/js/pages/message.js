// One message: its content, its position, why it is there, and its trace.

import { fill } from "../core/api.js";
import { html } from "../core/dom.js";
import { bytes, count, known } from "../core/format.js";
import { useAsk } from "../core/hooks.js";
import { link } from "../core/route.js";
import { Body } from "../parts/body.js";
import { ConsumeDirectly } from "../parts/group_actions.js";
import { bodyOf } from "../parts/messages_table.js";
import { Notice } from "../parts/notice.js";
import { Page } from "../parts/page.js";
import { Panel } from "../parts/panel.js";
import { SaveButton } from "../parts/save_button.js";
import { Table } from "../parts/table.js";
import { Badge, Facts, Flag, GroupLink, Time, TopicLink } from "../parts/text.js";
import { Waterfall } from "../parts/waterfall.js";
import { Why } from "../parts/why.js";

const TABS = [
  ["content", "Content"],
  ["why", "Why?"],
  ["trace", "Trace"],
];

export default function Message({ id, tab = "content", query }) {
  const { topic } = query;
  const ask = useAsk("/v1/messages/{id}", { id }, { topic }, { live: false });
  const message = ask.answer?.message;
  const Shown = { why: Why, trace: Waterfall }[tab];
  return html`<${Page}
    title=${id}
    up=${[[["messages"], "Messages"]]}
    actions=${message && html`<${ConsumeDirectly} topic=${message.topic} id=${id} compact=${false} />`}
  >
    <nav class="tabs" aria-label="Message">
      ${TABS.map(
        ([name, label]) =>
          html`<a
            href=${link(["messages", id, name], { topic, group: query.group })}
            aria-current=${name === tab ? "page" : undefined}
            >${label}</a
          >`,
      )}
    </nav>
    ${Shown ? html`<${Shown} id=${id} query=${query} />` : html`<${Content} id=${id} ask=${ask} topic=${topic} />`}
  <//>`;
}

function Content({ id, ask, topic }) {
  return html`
    <${Panel} title="Message" ask=${ask}>
      ${({ message }) =>
        html`<${Facts}
          of=${[
            ["Topic", html`<${TopicLink} topic=${message.topic} />`],
            ["Queue", `${message.broker}/${message.queue}`],
            ["Offset", count(message.offset)],
            ["Log position", count(message.position)],
            ["Tag", message.tag ? html`<${Badge}>${message.tag}<//>` : "none"],
            ["Keys", message.keys.join(", ") || "none"],
            ["Born", html`<${Time} ms=${message.born_ms} /> at ${message.born_host}`],
            ["Stored", html`<${Time} ms=${message.stored_ms} />`],
            ["Size stored", bytes(message.size_bytes)],
            ["Retries", count(message.reconsume_times)],
            ["Delay level", message.delay_level ?? "none"],
            ["Offset message ID", html`<code class="break">${message.offset_id}</code>`],
            [
              "Original ID",
              message.origin_id && message.origin_id !== id
                ? html`<code class="break">${message.origin_id}</code>`
                : undefined,
            ],
          ]}
        />`}
    <//>
    <${Panel}
      title="Body"
      ask=${ask}
      follows
      tools=${
        ask.answer &&
        html`<span class="quiet num">${bytes(ask.answer.message.body_bytes)}</span>
        <${SaveButton}
          label="Download"
          compact
          path=${fill("/v1/messages/{id}/body", { id })}
          query=${{ topic }}
          name=${`${id}.body`}
        />`
      }
    >
      ${({ message }) =>
        known(message.body_error)
          ? html`<${Notice} tone="bad">${message.body_error}<//>`
          : html`<${Body} data=${bodyOf(message)} size=${message.body_bytes} cut=${message.body_truncated} />`}
    <//>
    <${Panel} title="Properties" ask=${ask} follows>
      ${({ message }) => html`<${Properties} message=${message} />`}
    <//>
    <${Panel} title="Copies" ask=${ask} follows>${({ copies }) => html`<${Copies} copies=${copies} />`}<//>
    <${Panel} title="Groups" ask=${ask} follows>${({ tracks }) => html`<${Tracks} tracks=${tracks} id=${id} topic=${topic} />`}<//>
  `;
}

function Properties({ message }) {
  const rows = [
    ...Object.entries(message.properties).map(([name, value]) => ({
      name,
      value,
      own: "application",
    })),
    ...Object.entries(message.system_properties).map(([name, value]) => ({
      name,
      value,
      own: "system",
    })),
  ];
  return html`<${Table}
    label="Properties"
    rows=${rows}
    empty="None."
    columns=${[
      { key: "name", title: "Name", cell: ({ name }) => html`<code class="break">${name}</code>` },
      {
        key: "value",
        title: "Value",
        wide: true,
        cell: ({ value }) => html`<code class="break">${value}</code>`,
      },
      { key: "own", title: "Set by", cell: ({ own }) => html`<${Badge}>${own}<//>` },
    ]}
  />`;
}

function Copies({ copies }) {
  return html`<${Table}
    label="Copies"
    rows=${copies}
    empty="No other copies."
    columns=${[
      { key: "topic", title: "Topic", cell: ({ topic }) => html`<${TopicLink} topic=${topic} />` },
      { key: "broker", title: "Broker" },
      { key: "queue", title: "Queue", num: true },
      { key: "offset", title: "Offset", num: true },
      { key: "stored_ms", title: "Stored", cell: (row) => html`<${Time} ms=${row.stored_ms} />` },
      {
        key: "offset_id",
        title: "Offset message ID",
        cell: (row) => html`<code class="break">${row.offset_id}</code>`,
      },
    ]}
  />`;
}

function Tracks({ tracks, id, topic }) {
  return html`<${Table}
    label="Groups"
    rows=${tracks}
    rowKey=${({ group }) => group}
    empty="No group consumes the topic."
    columns=${[
      { key: "group", title: "Group", cell: ({ group }) => html`<${GroupLink} group=${group} />` },
      { key: "kind", title: "How" },
      {
        key: "consumed",
        title: "Already passed",
        about: "The committed offset is past this message; see Reason for filters.",
        cell: ({ consumed }) => html`<${Flag} of=${consumed} />`,
      },
      { key: "offset", title: "Committed", num: true },
      { key: "reason", title: "Reason", wide: true },
      {
        key: "why",
        title: "",
        fixed: true,
        cell: ({ group }) =>
          html`<a
            class="button compact"
            aria-label=${`Why, for ${group}`}
            href=${link(["messages", id, "why"], { topic, group })}
            >Why?</a
          >`,
      },
    ]}
  />`;
}
