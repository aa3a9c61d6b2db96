// Columns that several tables have: the same value has the same title and format everywhere.

import { html } from "../core/dom.js";
import { rate } from "../core/format.js";
import { BrokerLink, Duration, GroupLink, TopicLink, Value } from "./text.js";

export const BROKER = {
  key: "broker",
  title: "Broker",
  cell: ({ broker }) => html`<${BrokerLink} broker=${broker} />`,
};

export const GROUP = {
  key: "group",
  title: "Group",
  cell: ({ group }) => html`<${GroupLink} group=${group} />`,
};

export const TOPIC = {
  key: "topic",
  title: "Topic",
  cell: ({ topic }) => html`<${TopicLink} topic=${topic} />`,
};

/** The age of the oldest message that a group has not consumed. */
export const OLDEST_WAITS = {
  key: "lag_ms",
  title: "Oldest message age",
  num: true,
  cell: (row) => html`<${Duration} of=${row.lag_ms} />`,
};

/** Messages per second that a group receives. */
export const OUT = {
  key: "out_per_s",
  title: "Out",
  num: true,
  cell: (row) => html`<${Value} of=${row.out_per_s} format=${rate} />`,
};
