// Overview: rates, latencies, lag, disk usage, alarms.

import { html } from "../core/dom.js";
import { bytes, count, duration, known, percent, plural, rate } from "../core/format.js";
import { useAsk } from "../core/hooks.js";
import { Chart } from "../parts/chart.js";
import { BROKER } from "../parts/columns.js";
import { Page } from "../parts/page.js";
import { Panel } from "../parts/panel.js";
import { Table } from "../parts/table.js";
import {
  Badge,
  BrokerLink,
  Bytes,
  Count,
  Duration,
  Figures,
  Flag,
  GroupLink,
  Time,
  Value,
} from "../parts/text.js";

const CHARTS = [
  [
    "Messages",
    [
      ["messages_in_per_s", "in"],
      ["messages_out_per_s", "out"],
    ],
  ],
  [
    "Latency",
    [
      ["send_p50_ms", "send p50"],
      ["send_p99_ms", "send p99"],
      ["pull_p99_ms", "pull p99"],
    ],
  ],
  ["Bytes in", [["bytes_in_per_s", "in"]]],
  ["Lag", [["lag_messages", "messages"]]],
  ["Dead letters", [["dead_letters", "messages"]]],
  ["Disk, fullest broker", [["disk_used_ratio", "used"]]],
];

// For every percentile here: brokers report histograms with wide buckets (10, then 100 ms).
const ESTIMATED =
  "Estimated from the brokers' histograms, as Prometheus does.";

const ABOUT = { Latency: ESTIMATED };

const NAMES = CHARTS.flatMap(([, series]) => series.map(([name]) => name));

export default function Overview() {
  const overview = useAsk("/v1/overview");
  const alarms = useAsk("/v1/alarms");
  const series = useAsk("/v1/series", {}, { name: NAMES });
  return html`<${Page} title="Overview">
    <${Panel} title="Now" ask=${overview}>${(answer) => html`<${Now} answer=${answer} />`}<//>
    <div class="columns">
      <${Panel} title="Alarms" ask=${alarms} number=${alarms.answer?.items.length}>
        ${(answer) => html`<${Alarms} answer=${answer} />`}
      <//>
      <${Panel} title="Groups with the highest lag" ask=${overview} follows>
        ${(answer) => html`<${Lagging} groups=${answer.lagging} />`}
      <//>
    </div>
    <${Panel} title="The last hour" ask=${series}>
      ${(answer) => html`<${Charts} answer=${answer} />`}
    <//>
    <${Panel} title="Brokers" ask=${overview} follows>
      ${(answer) => html`<${Brokers} brokers=${answer.brokers} />`}
    <//>
  <//>`;
}

function Now({ answer }) {
  const sampled = known(answer.sampled_at_ms) ? null : "Rates are available from the second sample.";
  const shown = (value, format) => (known(value) ? format(value) : null);
  return html`
    <${Figures}
      of=${[
        ["Brokers up", `${count(answer.brokers_up)} of ${count(answer.brokers_known)}`],
        ["Messages in", shown(answer.messages_in_per_s, rate)],
        ["Messages out", shown(answer.messages_out_per_s, rate)],
        ["Send latency p99", shown(answer.send_p99_ms, duration), "estimated", ESTIMATED],
        ["Pull latency p99", shown(answer.pull_p99_ms, duration), "estimate; without long-poll waiting", ESTIMATED],
        ["Lag", shown(answer.lag_messages, count), "all groups"],
        ["Dead letters", shown(answer.dead_letters, count)],
        ["Disk used", shown(answer.disk_used_ratio, percent), "fullest broker"],
        ["Max replica lag", shown(answer.replica_lag_bytes, bytes)],
        [
          "Topics",
          shown(answer.topics, count),
          known(answer.system_topics) &&
            `+ ${count(answer.system_topics)} system, ${count(answer.group_topics)} retry and dead-letter`,
          "User topics. Not counted: system topics, and the retry and dead-letter topics of groups.",
        ],
        [
          "Groups",
          shown(answer.groups, count),
          known(answer.system_groups) && `+ ${count(answer.system_groups)} system`,
          "User groups. Not counted: system groups of the brokers.",
        ],
      ]}
    />
    ${sampled && html`<p class="empty">${sampled}</p>`}
  `;
}

function Alarms({ answer }) {
  return html`<${Table}
    label="Alarms"
    rows=${answer.items}
    empty="No alarm."
    columns=${[
      {
        key: "severity",
        title: "Severity",
        cell: ({ severity }) =>
          html`<${Badge} tone=${severity === "critical" ? "bad" : "warn"}>${severity}<//>`,
      },
      { key: "of", title: "Where", cell: ({ of, of_kind: kind }) => whereOf(kind, of) },
      {
        key: "title",
        title: "Alarm",
        wide: true,
        cell: ({ title, meaning, what_to_do: advice }) =>
          html`<strong>${title}</strong>
            <div>${meaning}</div>
            <div class="quiet">${advice}</div>`,
      },
      { key: "since_ms", title: "Since", cell: ({ since_ms: ms }) => html`<${Time} ms=${ms} />` },
    ]}
  />`;
}

function whereOf(kind, of) {
  if (kind === "broker") return html`<${BrokerLink} broker=${of} />`;
  if (kind === "group") return html`<${GroupLink} group=${of} />`;
  return html`<span class="break">${of}</span>`;
}

function Charts({ answer }) {
  const of = new Map(answer.series.map((one) => [one.name, one]));
  if (!answer.at_ms.length) return html`<p class="empty">No samples yet.</p>`;
  return html`<div class="charts">
    ${CHARTS.map(([title, names]) => {
      const series = names
        .filter(([name]) => of.has(name))
        .map(([name, label]) => ({ label, ...pick(of.get(name)) }));
      return (
        series.length > 0 &&
        html`<${Chart} title=${title} about=${ABOUT[title]} times=${answer.at_ms} series=${series} />`
      );
    })}
  </div>`;
}

const pick = ({ unit, values }) => ({ unit, values });

function Brokers({ brokers }) {
  const rateCell = (key) => (row) => html`<${Value} of=${row[key]} format=${rate} />`;
  const timeCell = (key) => (row) => html`<${Duration} of=${row[key]} />`;
  const sizeCell = (key) => (row) => html`<${Bytes} of=${row[key]} />`;
  return html`<${Table}
    label="Brokers"
    rows=${brokers}
    empty="No broker is registered."
    columns=${[
      BROKER,
      {
        key: "up",
        title: "State",
        cell: ({ up, why }) =>
          html`<${Flag} of=${up} yes="up" no="offline" bad="no" /> ${why && html`<span class="quiet">${why}</span>`}`,
      },
      { key: "messages_in_per_s", title: "In", num: true, cell: rateCell("messages_in_per_s") },
      { key: "messages_out_per_s", title: "Out", num: true, cell: rateCell("messages_out_per_s") },
      {
        key: "send_p99_ms",
        title: "Send latency p99",
        about: ESTIMATED,
        num: true,
        cell: timeCell("send_p99_ms"),
      },
      {
        key: "pull_p99_ms",
        title: "Pull latency p99",
        about: ESTIMATED,
        num: true,
        cell: timeCell("pull_p99_ms"),
      },
      {
        key: "disk_used_ratio",
        title: "Disk",
        num: true,
        cell: (row) => html`<${Value} of=${row.disk_used_ratio} format=${percent} />`,
      },
      { key: "log_bytes", title: "Log", num: true, cell: sizeCell("log_bytes") },
      { key: "unflushed_bytes", title: "Unflushed", num: true, cell: sizeCell("unflushed_bytes") },
      {
        key: "replica_lag_bytes",
        title: "Replica lag",
        num: true,
        cell: sizeCell("replica_lag_bytes"),
      },
      { key: "held_pulls", title: "Waiting pulls", num: true },
      { key: "lag_messages", title: "Lag", num: true },
    ]}
  />`;
}

function Lagging({ groups }) {
  return html`<${Table}
    label="Groups with the highest lag"
    rows=${groups}
    empty="No group lags."
    columns=${[
      { key: "group", title: "Group", cell: ({ group }) => html`<${GroupLink} group=${group} />` },
      {
        key: "lag_messages",
        title: "Lag",
        num: true,
        cell: ({ lag_messages: lag }) =>
          html`<${Value} of=${lag} format=${(value) => plural(value, "message")} />`,
      },
      {
        key: "dead_letters",
        title: "Dead letters",
        num: true,
        cell: ({ dead_letters: dead }) => html`<${Count} of=${dead} />`,
      },
    ]}
  />`;
}
