// One group: lag by queue, consumers and their subscriptions, settings.

import { html, useState } from "../core/dom.js";
import { count, known } from "../core/format.js";
import { useAsk } from "../core/hooks.js";
import { go } from "../core/route.js";
import { BROKER, OLDEST_WAITS, OUT, TOPIC } from "../parts/columns.js";
import {
  CloneOffsets,
  DeleteGroup,
  PutGroup,
  ResetGroup,
  SkipLag,
  leftOf,
} from "../parts/group_actions.js";
import { Notice } from "../parts/notice.js";
import { Page } from "../parts/page.js";
import { Panel } from "../parts/panel.js";
import { Running } from "../parts/running.js";
import { Table } from "../parts/table.js";
import { Tabs } from "../parts/tabs.js";
import { Figures, Flag, Link, Time, TopicLink, Unknown } from "../parts/text.js";

const TABS = [
  ["lag", "Lag"],
  ["members", "Consumers"],
  ["subscriptions", "Subscriptions"],
  ["config", "Config"],
];

export default function Group({ group, tab = "lag" }) {
  const ask = useAsk("/v1/groups/{group}", { group });
  const Shown =
    { lag: Lag, members: Members, subscriptions: Subscriptions, config: Config }[tab] || Lag;
  const topics = ask.answer?.topics;
  const actions = html`
    <${ResetGroup} group=${group} topics=${topics} done=${ask.refresh} />
    <${SkipLag} group=${group} topics=${topics} done=${ask.refresh} />
    <${CloneOffsets} group=${group} done=${ask.refresh} />
    <${DeleteGroup} group=${group} done=${() => go(["groups"])} />
  `;
  return html`<${Page} title=${group} up=${[[["groups"], "Groups"]]} actions=${actions}>
    <${Panel} title="Now" ask=${ask}>${(answer) => html`<${Now} answer=${answer} />`}<//>
    <${Tabs} label="Group" base=${["groups", group]} tabs=${TABS} current=${tab} />
    <${Shown} group=${group} ask=${ask} />
  <//>`;
}

function Now({ answer }) {
  const shown = (value) => (known(value) ? count(value) : null);
  const dead = answer.dead_letters;
  return html`<${Figures}
    of=${[
      ["Consumers", shown(answer.members)],
      ["Lag", shown(answer.lag_messages), "messages"],
      [
        "Dead letters",
        dead > 0
          ? html`<${Link} to=${["dead-letters", answer.group]}>${count(dead)}<//>`
          : shown(dead),
        "at the last count",
      ],
      ["Topics", count(answer.topics.length)],
      ["Consumption enabled", html`<${Flag} of=${answer.consume_enabled} bad="no" />`],
      ["Model", answer.model ? answer.model.toLowerCase() : null],
    ]}
  />`;
}

function Lag({ group }) {
  const ask = useAsk("/v1/groups/{group}/lag", { group });
  return html`
    <${Panel} title="Lag by topic" ask=${ask}>
      ${(answer) =>
        html`<${Table}
          label="Lag by topic"
          rows=${answer.topics}
          empty="It has not consumed any messages."
          columns=${[
            TOPIC,
            { key: "lag_messages", title: "Lag", num: true },
            OLDEST_WAITS,
            OUT,
          ]}
        />`}
    <//>
    <${Panel} title="Lag by queue" ask=${ask} follows number=${ask.answer?.total}>
      ${(answer) =>
        html`<${Table}
          label="Lag by queue"
          find="Filter queues"
          rows=${answer.items}
          empty="It has no offsets in any queue."
          columns=${[
            TOPIC,
            BROKER,
            { key: "queue", title: "Queue", num: true },
            { key: "committed", title: "Committed", num: true },
            { key: "end", title: "End", num: true },
            { key: "lag_messages", title: "Lag", num: true },
            OLDEST_WAITS,
            {
              key: "last_consumed_ms",
              title: "Last consumed",
              cell: (row) => html`<${Time} ms=${row.last_consumed_ms} />`,
            },
            {
              key: "member",
              title: "Consumer",
              cell: ({ member }) =>
                member
                  ? html`<code class="break">${member}</code>`
                  : html`<${Unknown} why="no known consumer" />`,
            },
          ]}
        />`}
    <//>
  `;
}

function Members({ group }) {
  const ask = useAsk("/v1/groups/{group}/members", { group });
  const [client, setClient] = useState(null);
  return html`
    <${Panel} title="Consumers" ask=${ask} number=${ask.answer?.total}>
      ${(answer) =>
        html`<${Table}
          label="Consumers"
          rows=${answer.items}
          rowKey=${({ client }) => client}
          empty="No consumer is connected."
          columns=${[
            {
              key: "client",
              title: "Client",
              cell: (row) => html`<code class="break">${row.client}</code>`,
            },
            { key: "address", title: "Address", cell: (row) => html`<code>${row.address}</code>` },
            { key: "language", title: "Language" },
            { key: "version", title: "Version" },
            {
              key: "running",
              title: "",
              fixed: true,
              cell: (row) =>
                html`<button
                  type="button"
                  class="compact"
                  aria-label=${`Status of ${row.client}`}
                  onClick=${() => setClient(row.client)}
                >
                  Status
                </button>`,
            },
          ]}
        />`}
    <//>
    ${client && html`<${Running} key=${client} group=${group} client=${client} />`}
  `;
}

function Subscriptions({ group }) {
  const ask = useAsk("/v1/groups/{group}/subscriptions", { group });
  return html`<${Panel} title="Subscriptions by consumer" ask=${ask}>
    ${(answer) => html`
      ${answer.clashes.map((clash) => html`<${Clash} clash=${clash} />`)}
      <${Table}
        label="Subscriptions"
        rows=${answer.items.flatMap(({ client, subscriptions, why }) =>
          subscriptions
            ? subscriptions.map((one) => ({ client, ...one }))
            : [{ client, topic: null, expression: null, kind: null, why }],
        )}
        empty="No consumer is connected."
        columns=${[
          {
            key: "client",
            title: "Client",
            cell: (row) => html`<code class="break">${row.client}</code>`,
          },
          {
            key: "topic",
            title: "Topic",
            cell: ({ topic, why }) =>
              topic
                ? html`<${TopicLink} topic=${topic} />`
                : html`<span class="quiet">${why}</span>`,
          },
          { key: "kind", title: "By", cell: ({ kind }) => wordOf(kind) },
          {
            key: "expression",
            title: "Expression",
            cell: ({ expression, kind }) =>
              kind === "FILTER"
                ? html`<${Link} to=${["filters", group, expression]} class="break">${expression}<//>`
                : html`<code class="break">${expression}</code>`,
          },
        ]}
      />
    `}
  <//>`;
}

// A tag or SQL92 expression is shown as it is; a Python filter is shown by its name.
const wordOf = (kind) => (kind === "FILTER" ? "Python filter" : kind);

function Clash({ clash }) {
  return html`<${Notice} tone="bad">
    <strong>Inconsistent subscriptions: ${clash.topic}.</strong> ${clash.meaning}
    <ul>
      ${clash.sides.map(
        ({ expression, kind, clients }) =>
          html`<li>
            ${expression === null ? "not subscribed" : html`<code>${expression}</code> (${wordOf(kind)})`}: ${clients.join(", ")}
          </li>`,
      )}
    </ul>
    What to do: ${clash.what_to_do}
  <//>`;
}

function Config({ group, ask }) {
  return html`<${Panel} title="Config by broker" ask=${ask}>
    ${(answer) => html`
      ${answer.clashes.map((clash) => html`<${Notice} tone="warn">${clash}<//>`)}
      <${Table}
        label="Config by broker"
        rows=${answer.configs}
        rowKey=${({ broker }) => broker}
        empty=${`Not configured: ${leftOf(answer, answer.missing)}.`}
        columns=${[
          BROKER,
          {
            key: "consume_enabled",
            title: "Consumption enabled",
            cell: (row) => html`<${Flag} of=${row.consume_enabled} bad="no" />`,
          },
          { key: "attempts", title: "Max retries", num: true },
          { key: "retry_queues", title: "Retry queues", num: true },
          {
            key: "from_min_enabled",
            title: "From minimum offset",
            cell: (row) => html`<${Flag} of=${row.from_min_enabled} />`,
          },
          {
            key: "broadcast_enabled",
            title: "Broadcast",
            cell: (row) => html`<${Flag} of=${row.broadcast_enabled} />`,
          },
          {
            key: "change",
            title: "",
            fixed: true,
            cell: (config) =>
              html`<${PutGroup} label="Change" compact group=${group} config=${config} done=${ask.refresh} />`,
          },
        ]}
      />
    `}
  <//>`;
}
