// Cluster: brokers, leaders, replicas and their progress, quotas; a probe that sends through each
// broker.

import { call } from "../core/api.js";
import { html } from "../core/dom.js";
import { useAsk } from "../core/hooks.js";
import { Action } from "../parts/action.js";
import { BROKER } from "../parts/columns.js";
import { Members } from "../parts/members.js";
import { Page } from "../parts/page.js";
import { Panel } from "../parts/panel.js";
import { Table } from "../parts/table.js";
import { Badge, Bytes, Duration, Flag, Time } from "../parts/text.js";

export default function Cluster() {
  const ask = useAsk("/v1/cluster");
  const quotas = useAsk("/v1/quotas");
  const brokers = ask.answer?.clusters.flatMap((one) => one.brokers) || [];
  return html`<${Page} title="Cluster" actions=${html`<${Probe} />`}>
    <${Panel} title="Brokers" ask=${ask} number=${brokers.length}>
      ${() => html`<${Brokers} brokers=${brokers} />`}
    <//>
    <${Panel} title="Replicas" ask=${ask} follows>
      ${() => html`<${Members} members=${brokers.flatMap((broker) => broker.members)} />`}
    <//>
    <${Panel} title="Quotas" ask=${quotas} number=${quotas.answer?.items.length}>
      ${(answer) => html`<${Quotas} rows=${answer.items} />`}
    <//>
  <//>`;
}

function Quotas({ rows }) {
  return html`<${Table}
    label="Quotas"
    rows=${rows}
    empty="Nothing is limited. Quotas are set with kourou quota."
    columns=${[
      { key: "kind", title: "For" },
      { key: "name", title: "Name" },
      {
        key: "publish_bytes",
        title: "Publish/s",
        num: true,
        cell: (row) => row.publish_bytes && html`<${Bytes} of=${row.publish_bytes} />`,
      },
      {
        key: "publish_messages",
        title: "Publish messages/s",
        num: true,
        value: (row) => row.publish_messages ?? "",
      },
      {
        key: "fetch_bytes",
        title: "Fetch/s",
        num: true,
        cell: (row) => row.fetch_bytes && html`<${Bytes} of=${row.fetch_bytes} />`,
      },
      {
        key: "fetch_messages",
        title: "Fetch messages/s",
        num: true,
        value: (row) => row.fetch_messages ?? "",
      },
      {
        key: "requests",
        title: "Requests/s",
        num: true,
        value: (row) => row.requests ?? "",
      },
      {
        key: "connections",
        title: "Connections",
        num: true,
        value: (row) => row.connections ?? "",
      },
      {
        key: "topics",
        title: "Topics",
        num: true,
        value: (row) => row.topics ?? "",
      },
      {
        key: "groups",
        title: "Groups",
        num: true,
        value: (row) => row.groups ?? "",
      },
      {
        key: "stored_bytes",
        title: "Stored",
        num: true,
        cell: (row) => row.stored_bytes && html`<${Bytes} of=${row.stored_bytes} />`,
      },
      { key: "brokers", title: "Brokers", value: (row) => row.brokers.join(", ") },
    ]}
  />`;
}

function Brokers({ brokers }) {
  return html`<${Table}
    label="Brokers"
    rows=${brokers}
    empty="No broker is registered."
    columns=${[
      BROKER,
      { key: "cluster", title: "Cluster" },
      {
        key: "up",
        title: "State",
        cell: ({ up, why }) =>
          html`<${Flag} of=${up} yes="up" no="offline" bad="no" /> ${why && html`<span class="quiet">${why}</span>`}`,
      },
      {
        key: "writable",
        title: "Writable",
        cell: ({ writable }) => html`<${Flag} of=${writable} bad="no" />`,
      },
      {
        key: "replication",
        title: "Replication",
        cell: ({ replication }) => html`<${Badge}>${replication || "unknown"}<//>`,
      },
      { key: "leader", title: "Leader" },
      { key: "epoch", title: "Epoch", num: true },
      { key: "messages_in_today", title: "In (today)", num: true },
      { key: "messages_out_today", title: "Out (today)", num: true },
      {
        key: "disk_free_bytes",
        title: "Disk free",
        num: true,
        cell: (row) => html`<${Bytes} of=${row.disk_free_bytes} />`,
      },
      { key: "version", title: "Version" },
      {
        key: "started_at_ms",
        title: "Started",
        cell: (row) => html`<${Time} ms=${row.started_at_ms} />`,
      },
    ]}
  />`;
}

function Probe() {
  return html`<${Action}
    label="Probe"
    compact=${false}
    title="Measure the send latency of every broker"
    verb="Send"
    large
    warning="Messages are sent to a test topic of each broker."
    fields=${[
      { name: "count", label: "Messages per broker", kind: "number", min: 1, max: 100, value: 5 },
      {
        name: "size_bytes",
        label: "Size in bytes",
        kind: "number",
        min: 1,
        max: 65536,
        value: 128,
      },
    ]}
    send=${(values) => call("POST", "/v1/probes", { body: values })}
    result=${(answer) =>
      html`<${Table}
        label="Sends"
        rows=${answer.items}
        columns=${[
          { key: "broker", title: "Broker" },
          { key: "queue", title: "Queue", num: true },
          {
            key: "took_ms",
            title: "Duration",
            num: true,
            cell: (row) => html`<${Duration} of=${row.took_ms} />`,
          },
          { key: "status", title: "Status", value: (row) => row.status || row.error },
        ]}
      />`}
  />`;
}
