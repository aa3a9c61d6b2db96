// One broker: replicas, settings with their defaults, control events, raw metrics.

import { call, fill } from "../core/api.js";
import { html } from "../core/dom.js";
import { bytes, known } from "../core/format.js";
import { useAsk } from "../core/hooks.js";
import { Action } from "../parts/action.js";
import { GROUP, OLDEST_WAITS, TOPIC } from "../parts/columns.js";
import { Decisions } from "../parts/decisions.js";
import { Members } from "../parts/members.js";
import { Page } from "../parts/page.js";
import { Panel } from "../parts/panel.js";
import { Settings } from "../parts/settings.js";
import { Table } from "../parts/table.js";
import { Tabs } from "../parts/tabs.js";
import { Facts, Flag, Time } from "../parts/text.js";

const TABS = [
  ["state", "State"],
  ["settings", "Settings"],
  ["history", "History"],
  ["groups", "Groups"],
  ["figures", "Metrics"],
];

export default function Broker({ broker, tab = "state" }) {
  const ask = useAsk("/v1/brokers/{broker}", { broker });
  const Shown =
    { state: State, settings: Settings, history: History, groups: Groups, figures: Raw }[tab] ||
    State;
  return html`<${Page}
    title=${broker}
    up=${[[["cluster"], "Cluster"]]}
    badges=${ask.answer && html`<${Flag} of=${ask.answer.up} yes="up" no="offline" bad="no" />`}
    actions=${html`<${Actions} broker=${broker} writable=${ask.answer?.writable} done=${ask.refresh} />`}
  >
    <${Tabs} label="Broker" base=${["cluster", broker]} tabs=${TABS} current=${tab} />
    <${Shown} broker=${broker} ask=${ask} />
  <//>`;
}

function State({ ask }) {
  return html`
    <${Panel} title="Broker" ask=${ask}>
      ${(answer) =>
        html`<${Facts}
          of=${[
            ["Cluster", answer.cluster],
            ["Leader", answer.leader],
            ["Epoch", answer.epoch],
            ["Replication", answer.replication],
            [
              "Writable",
              answer.writable === null ? null : html`<${Flag} of=${answer.writable} bad="no" />`,
            ],
            ["Version", answer.version],
            [
              "Started",
              known(answer.started_at_ms) ? html`<${Time} ms=${answer.started_at_ms} />` : null,
            ],
            [
              "Disk",
              known(answer.disk_total_bytes)
                ? `${bytes(answer.disk_free_bytes)} free of ${bytes(answer.disk_total_bytes)}`
                : null,
            ],
            ["Disk level", answer.disk_level],
          ]}
        />`}
    <//>
    <${Panel} title="Replicas" ask=${ask} follows>
      ${(answer) => html`<${Members} members=${answer.members} />`}
    <//>
  `;
}

function History({ broker }) {
  return html`<${Decisions} title="Control history of this broker" query=${{ broker }} />`;
}

function Groups({ broker }) {
  const ask = useAsk("/v1/brokers/{broker}/groups", { broker });
  return html`<${Panel} title="Groups at this broker" ask=${ask} number=${ask.answer?.total}>
    ${(answer) =>
      html`<${Table}
        label="Groups at this broker"
        rows=${answer.items}
        find="Filter"
        empty="No group has offsets here."
        columns=${[
          GROUP,
          TOPIC,
          { key: "queue", title: "Queue", num: true },
          { key: "committed", title: "Committed", num: true },
          { key: "end", title: "End", num: true },
          { key: "lag_messages", title: "Lag", num: true },
          OLDEST_WAITS,
        ]}
      />`}
  <//>`;
}

function Raw({ broker }) {
  const ask = useAsk("/v1/brokers/{broker}/runtime", { broker });
  return html`<${Panel} title="Metrics reported by the broker" ask=${ask}>
    ${(answer) =>
      html`<${Table}
        label="Metrics"
        find="Filter"
        rows=${Object.entries(answer.raw).map(([name, value]) => ({ name, value }))}
        columns=${[
          { key: "name", title: "Name", cell: ({ name }) => html`<code>${name}</code>` },
          {
            key: "value",
            title: "Value",
            wide: true,
            cell: ({ value }) => html`<span class="break">${value}</span>`,
          },
        ]}
      />`}
  <//>`;
}

function Actions({ broker, writable, done }) {
  const post = (what) => (values, preview) =>
    call("POST", fill(`/v1/brokers/{broker}/${what}`, { broker }), {
      query: { preview },
      body: values,
    });
  const common = { previews: true, compact: false, done };
  const permission = (_, preview) =>
    call("PUT", fill("/v1/brokers/{broker}/write-permission", { broker }), {
      query: { preview },
      body: { writable: !writable },
    });
  return html`
    ${
      known(writable) &&
      html`<${Action}
      ...${common}
      label=${writable ? "Stop accepting writes" : "Accept writes"}
      tone=${writable ? "danger" : ""}
      title=${writable ? `Stop accepting writes at ${broker}` : `Accept writes at ${broker}`}
      send=${permission}
    />`
    }
    <${Action}
      ...${common}
      label="Clean up"
      title=${`Clean up at ${broker}`}
      fields=${[
        {
          name: "what",
          label: "Operation",
          kind: "select",
          value: "expired_log",
          options: [
            ["expired_log", "expired log segments"],
            ["expired_queues", "queue and index files of deleted log segments"],
            ["unused_topics", "queues of deleted topics"],
          ],
        },
      ]}
      send=${post("cleaning")}
    />
    <${Action}
      ...${common}
      label="Transfer leader"
      title=${`Transfer leadership of ${broker}`}
      fields=${[
        { name: "to", label: "Replica", hint: "Name or broker ID. Empty: the most up-to-date replica." },
      ]}
      send=${post("transfer-leader")}
    />
    <${Action}
      ...${common}
      label="Promote"
      tone="danger"
      title=${`Promote a follower of ${broker}`}
      name=${broker}
      fields=${[
        { name: "broker_id", label: "Broker id", kind: "number", min: 0 },
        { name: "address", label: "Address", placeholder: "host:port" },
        {
          name: "force",
          label: "Even if it may lack messages",
          kind: "checkbox",
          hint: "Messages that only the old leader has will be lost.",
          whole: true,
        },
      ]}
      send=${post("promote")}
    />
  `;
}
