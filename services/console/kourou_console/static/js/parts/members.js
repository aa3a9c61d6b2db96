// Replicas of brokers: leaders and followers, their epochs and replication lag.

import { html } from "../core/dom.js";
import { count, known } from "../core/format.js";
import { Table } from "./table.js";
import { Badge, Bytes, Duration, Flag, Unknown } from "./text.js";

const TONES = { leader: "accent", fenced: "bad", candidate: "warn", missing: "bad" };

export function Members({ members }) {
  const position = (key) => (row) => (known(row[key]) ? count(row[key]) : html`<${Unknown} />`);
  return html`<${Table}
    label="Replicas"
    rows=${members}
    empty="No replica is known."
    columns=${[
      { key: "broker", title: "Broker" },
      {
        key: "member",
        title: "Replica",
        value: (row) => row.member || row.registered_id,
        cell: (row) => row.member || `id ${row.registered_id}`,
      },
      {
        key: "address",
        title: "Address",
        cell: (row) =>
          row.address ? html`<code>${row.address}</code>` : html`<${Unknown} />`,
      },
      {
        key: "role",
        title: "Role",
        cell: ({ role, state, why }) =>
          html`<${Badge} tone=${TONES[role] || ""}>${role || "unknown"}<//>
            ${state && state !== role && html` ${state}`}
            ${why && html`<div class="quiet">${why}</div>`}`,
      },
      { key: "epoch", title: "Epoch", num: true, cell: (row) => html`<${Epochs} row=${row} />` },
      { key: "end", title: "End", num: true, cell: position("end") },
      { key: "flushed", title: "Flushed", num: true, cell: position("flushed") },
      { key: "confirmed", title: "Committed", num: true, cell: position("confirmed") },
      {
        key: "lag_bytes",
        title: "Lag",
        num: true,
        cell: (row) => html`<${Bytes} of=${row.lag_bytes} />`,
      },
      {
        key: "lag_ms",
        title: "Lag time",
        num: true,
        cell: (row) => html`<${Duration} of=${row.lag_ms} />`,
      },
      {
        key: "in_sync",
        title: "In sync",
        cell: (row) => html`<${Flag} of=${row.in_sync} />`,
      },
    ]}
  />`;
}

function Epochs({ row }) {
  if (!known(row.epoch)) return html`<${Unknown} />`;
  const told = row.epochs
    .map(({ epoch, begins_at: begins }) => `${epoch} begins at ${count(begins)}`)
    .join("; ");
  return html`<span title=${told}>${row.epoch}</span>`;
}
