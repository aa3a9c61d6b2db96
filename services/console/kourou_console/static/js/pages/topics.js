// Topics: list by kind; creation, and the actions of each topic.

import { html, useState } from "../core/dom.js";
import { count, known } from "../core/format.js";
import { useAsk } from "../core/hooks.js";
import { link } from "../core/route.js";
import { Page } from "../parts/page.js";
import { Panel } from "../parts/panel.js";
import { Table } from "../parts/table.js";
import { Badge, Several, TopicLink, Unknown } from "../parts/text.js";
import { DeleteTopic, PutTopic, ResetOffsets, SendMessage } from "../parts/topic_actions.js";

const KINDS = [
  ["normal", "NORMAL"],
  ["retry", "RETRY"],
  ["dlq", "DLQ"],
  ["system", "SYSTEM"],
];

const PERMISSIONS = { rw: "read, write", r: "read", w: "write", none: "none" };

export default function Topics() {
  const [kinds, setKinds] = useState(["normal"]);
  const ask = useAsk(kinds.length ? "/v1/topics" : null, {}, { kind: kinds });
  const toggle = (kind) =>
    setKinds(kinds.includes(kind) ? kinds.filter((one) => one !== kind) : [...kinds, kind]);
  const actions = html`
    <${PutTopic} label="ADD/UPDATE" done=${ask.refresh} />
    <button type="button" onClick=${ask.refresh}>REFRESH</button>
  `;
  const filter = html`<fieldset class="row kinds">
    <legend class="hidden-label">Kinds of topics</legend>
    ${KINDS.map(
      ([kind, label]) =>
        html`<label class="check">
          <input type="checkbox" checked=${kinds.includes(kind)} onChange=${() => toggle(kind)} />
          ${label}
          ${
            known(ask.answer?.kinds?.[kind]) &&
            html`<span class="quiet">${count(ask.answer.kinds[kind])}</span>`
          }
        </label>`,
    )}
  </fieldset>`;
  return html`<${Page} title="Topics" actions=${actions}>
    ${filter}
    ${
      kinds.length === 0
        ? html`<p class="empty">No kind selected.</p>`
        : html`<${Panel} title="Topics" ask=${ask} number=${ask.answer?.total}>
          ${(answer) => html`<${List} answer=${answer} done=${ask.refresh} />`}
        <//>`
    }
  <//>`;
}

function List({ answer, done }) {
  return html`<${Table}
    label="Topics"
    find="Filter topics"
    rows=${answer.items}
    rowKey=${({ topic }) => topic}
    empty="No topic of this kind."
    columns=${[
      {
        key: "topic",
        title: "Topic",
        wide: true,
        cell: ({ topic, clashes }) =>
          html`<${TopicLink} topic=${topic} />
            ${clashes.map((clash) => html`<div class="small quiet"><${Badge} tone="warn">clash<//> ${clash}</div>`)}`,
      },
      {
        key: "kind",
        title: "Kind",
        cell: ({ kind, purpose }) =>
          html`<${Badge}>${kind}<//> ${purpose && html`<span class="quiet">${purpose}</span>`}`,
      },
      {
        key: "brokers",
        title: "Brokers",
        num: true,
        value: (row) => row.brokers.length,
        cell: ({ brokers }) => html`<${Several} names=${brokers} />`,
      },
      {
        key: "write_queues",
        title: "Queues",
        num: true,
        cell: (row) =>
          row.read_queues === row.write_queues
            ? count(row.write_queues)
            : `${count(row.write_queues)} w / ${count(row.read_queues)} r`,
      },
      {
        key: "permission",
        title: "Permission",
        cell: ({ permission }) =>
          PERMISSIONS[permission] || html`<${Unknown} why="brokers differ" />`,
      },
      {
        key: "actions",
        title: "",
        fixed: true,
        cell: (row) => html`<${Actions} row=${row} done=${done} />`,
      },
    ]}
  />`;
}

function Actions({ row, done }) {
  const { topic, kind } = row;
  const page = (tab, label) =>
    html`<a class="button compact" href=${link(["topics", topic, tab])} aria-label=${`${label} of ${topic}`}
      >${label}</a
    >`;
  return html`<div class="row-actions actions-of-topic">
    ${page("status", "STATUS")} ${page("route", "ROUTER")} ${page("groups", "CONSUMER MANAGE")}
    ${page("config", "TOPIC CONFIG")}
    ${kind === "normal" && html`<${SendMessage} topic=${topic} done=${done} />`}
    <${ResetOffsets} topic=${topic} />
    ${kind !== "system" && html`<${DeleteTopic} topic=${topic} done=${done} />`}
  </div>`;
}
