// Moves a group's offsets: the target, and the messages that are skipped or repeated.

import { html } from "../core/dom.js";
import { count, fieldTime } from "../core/format.js";
import { REASON } from "./action.js";
import { Table } from "./table.js";
import { Unknown } from "./text.js";

const HOUR_MS = 3_600_000;

export function resetFields() {
  return [
    {
      name: "to",
      label: "To",
      kind: "select",
      value: "time",
      options: [
        ["time", "a time"],
        ["begin", "the oldest message"],
        ["end", "the newest: skip the backlog"],
      ],
    },
    {
      name: "at_ms",
      label: "Time",
      kind: "time",
      value: fieldTime(Date.now() - HOUR_MS),
      when: (values) => values.to === "time",
    },
    REASON,
  ];
}

/** The moves of a preview, queue by queue. */
export function Moves({ answer }) {
  return html`<${Table}
    label="Moves"
    rows=${answer.items}
    empty="No offset changes."
    columns=${[
      { key: "topic", title: "Topic" },
      { key: "broker", title: "Broker" },
      { key: "queue", title: "Queue", num: true },
      {
        key: "from",
        title: "From",
        num: true,
        cell: ({ from }) =>
          from === null ? html`<${Unknown} why="no offset yet" />` : count(from),
      },
      { key: "to", title: "To", num: true },
      { key: "skipped", title: "Messages skipped", num: true },
      { key: "repeated", title: "Messages again", num: true },
    ]}
  />`;
}
