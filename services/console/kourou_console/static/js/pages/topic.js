// One topic: state of its queues, route, consumers, configuration, messages, live tail.

import { html } from "../core/dom.js";
import { count, known, rate } from "../core/format.js";
import { useAsk } from "../core/hooks.js";
import { go } from "../core/route.js";
import { Browse } from "../parts/browse.js";
import { BROKER, GROUP, OLDEST_WAITS, OUT } from "../parts/columns.js";
import { Page } from "../parts/page.js";
import { Panel } from "../parts/panel.js";
import { Table } from "../parts/table.js";
import { Tabs } from "../parts/tabs.js";
import { Tail } from "../parts/tail.js";
import { Badge, Figures, Time } from "../parts/text.js";
import { DeleteTopic, PutTopic, ResetOffsets, SendMessage } from "../parts/topic_actions.js";

const TABS = [
  ["status", "Status"],
  ["route", "Router"],
  ["groups", "Consumers"],
  ["config", "Config"],
  ["browse", "Browse"],
  ["tail", "Live tail"],
];

export default function Topic({ topic, tab = "status" }) {
  const ask = useAsk("/v1/topics/{topic}", { topic });
  const kind = ask.answer?.kind;
  const Shown =
    { status: Status, route: Router, groups: Groups, config: Config, browse: Browse, tail: Tail }[
      tab
    ] || Status;
  const actions = html`
    ${kind === "normal" && html`<${SendMessage} topic=${topic} compact=${false} />`}
    <${ResetOffsets} topic=${topic} compact=${false} />
    ${kind !== "system" && html`<${DeleteTopic} topic=${topic} compact=${false} done=${() => go(["topics"])} />`}
  `;
  return html`<${Page}
    title=${topic}
    up=${[[["topics"], "Topics"]]}
    badges=${kind && html`<${Badge}>${kind}<//>`}
    actions=${actions}
  >
    <${Tabs} label="Topic" base=${["topics", topic]} tabs=${TABS} current=${tab} />
    <${Shown} topic=${topic} ask=${ask} />
  <//>`;
}

function Status({ topic, ask }) {
  const status = useAsk("/v1/topics/{topic}/status", { topic });
  return html`
    <${Panel} title="Now" ask=${ask}>
      ${(answer) =>
        html`<${Figures}
          of=${[
            ["Messages kept", known(answer.messages) ? count(answer.messages) : null],
            ["In", known(answer.messages_in_per_s) ? rate(answer.messages_in_per_s) : null],
            ["In 24 h", known(answer.messages_in_24h) ? count(answer.messages_in_24h) : null],
            ["Queues", count(answer.write_queues)],
            ["Groups", answer.groups ? count(answer.groups.length) : null],
          ]}
        />`}
    <//>
    <${Panel} title="Queues" ask=${status} number=${status.answer?.total}>
      ${(answer) =>
        html`<${Table}
          label="Queues"
          rows=${answer.items}
          empty="No queue."
          columns=${[
            BROKER,
            { key: "queue", title: "Queue", num: true },
            { key: "min_offset", title: "Oldest offset", num: true },
            { key: "max_offset", title: "End", num: true },
            { key: "messages", title: "Messages", num: true },
            {
              key: "last_stored_ms",
              title: "Last stored",
              cell: (row) => html`<${Time} ms=${row.last_stored_ms} why="no messages stored" />`,
            },
          ]}
        />`}
    <//>
  `;
}

function Router({ topic }) {
  const ask = useAsk("/v1/topics/{topic}/route", { topic });
  return html`
    <${Panel} title="Route" ask=${ask}>
      ${(answer) =>
        html`<${Table}
          label="Route"
          rows=${answer.queues}
          empty="No broker has this topic."
          columns=${[
            BROKER,
            { key: "address", title: "Address", cell: (row) => html`<code>${row.address}</code>` },
            { key: "write_queues", title: "Write queues", num: true },
            { key: "read_queues", title: "Read queues", num: true },
            { key: "permission", title: "Permission" },
          ]}
        />`}
    <//>
    <${Panel} title="Replicas" ask=${ask} follows>
      ${(answer) =>
        html`<${Table}
          label="Replicas"
          rows=${answer.brokers.flatMap(({ broker, cluster, members }) =>
            members.map((member) => ({ broker, cluster, ...member })),
          )}
          columns=${[
            { key: "broker", title: "Broker" },
            { key: "cluster", title: "Cluster" },
            { key: "registered_id", title: "Id", num: true },
            {
              key: "address",
              title: "Address",
              cell: ({ address }) => html`<code>${address}</code>`,
            },
          ]}
        />`}
    <//>
  `;
}

function Groups({ topic }) {
  const ask = useAsk("/v1/topics/{topic}/groups", { topic });
  return html`<${Panel} title="Consumer groups" ask=${ask} number=${ask.answer?.total}>
    ${(answer) =>
      html`<${Table}
        label="Groups"
        rows=${answer.items}
        empty="No consumer group yet."
        columns=${[
          GROUP,
          { key: "members", title: "Consumers", num: true },
          { key: "lag_messages", title: "Lag", num: true },
          OLDEST_WAITS,
          OUT,
          { key: "out_24h", title: "Out 24 h", num: true },
        ]}
      />`}
  <//>`;
}

function Config({ topic }) {
  const ask = useAsk("/v1/topics/{topic}/config", { topic });
  return html`<${Panel} title="Config by broker" ask=${ask}>
    ${(answer) => html`
      ${answer.clashes.map((clash) => html`<p class="notice warn">${clash}</p>`)}
      <${Table}
        label="Config by broker"
        rows=${answer.items}
        rowKey=${({ broker }) => broker}
        columns=${[
          BROKER,
          { key: "write_queues", title: "Write queues", num: true },
          { key: "read_queues", title: "Read queues", num: true },
          { key: "permission", title: "Permission" },
          { key: "order", title: "Order", cell: ({ order }) => (order ? "per queue" : "no") },
          {
            key: "change",
            title: "",
            fixed: true,
            cell: (config) =>
              html`<${PutTopic} label="Change" compact topic=${topic} config=${config} done=${ask.refresh} />`,
          },
        ]}
      />
    `}
  <//>`;
}
