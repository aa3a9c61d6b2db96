// Actions of a topic: create or change it, send to it, reset a group on it, delete it.

import { call, fill, get } from "../core/api.js";
import { html } from "../core/dom.js";
import { count, known } from "../core/format.js";
import { Action, REASON } from "./action.js";
import { resetFields, Moves } from "./moves.js";
import { changesAtEach } from "./settings.js";
import { Table } from "./table.js";
import { Facts, Link, MessageLink } from "./text.js";

/** Creates a topic, or changes the one described by `config` (a TopicConfig). */
export function PutTopic({ topic, config, label, done, compact = false }) {
  const queues = (name, label) => ({
    name,
    label,
    kind: "number",
    min: 1,
    max: 1024,
    value: config?.[name],
    hint: config ? undefined : "Empty: unchanged (8 for a new topic).",
  });
  const fields = [
    { name: "topic", label: "Topic", required: true, when: () => !topic },
    queues("write_queues", "Write queues"),
    queues("read_queues", "Read queues"),
    {
      name: "permission",
      label: "Permission",
      kind: "select",
      value: config?.permission ?? "",
      options: [
        ["", "unchanged"],
        ["rw", "read, write"],
        ["r", "read only"],
        ["w", "write only"],
      ],
    },
    {
      name: "order",
      label: "Order is kept per queue",
      kind: "flag",
      value: config && String(config.order),
    },
    { name: "broker", label: "Broker", hint: "Empty: all.", value: config?.broker },
    { name: "cluster", label: "Cluster", hint: "Empty: the only cluster.", when: () => !config },
    REASON,
  ];
  return html`<${Action}
    label=${label}
    compact=${compact}
    spoken=${topic && `${label} ${topic}${config ? ` at ${config.broker}` : ""}`}
    verb=${topic ? "Change" : "Write"}
    title=${topic ? `Change ${topic}` : "Add or update a topic"}
    previews
    large
    fields=${fields}
    send=${({ topic: typed, ...body }, preview) =>
      call("PUT", fill("/v1/topics/{topic}", { topic: topic || typed }), {
        query: { preview },
        body,
      })}
    shown=${changesAtEach}
    done=${done}
  />`;
}

export function SendMessage({ topic, done, compact = true }) {
  const fields = [
    { name: "tag", label: "Tag" },
    { name: "keys", label: "Keys", hint: "Separated by spaces." },
    { name: "order_key", label: "Order key", hint: "Messages with the same order key go to the same queue." },
    {
      name: "delay_level",
      label: "Delay level",
      kind: "number",
      min: 0,
      max: 18,
      hint: "1 s to 2 h by default.",
    },
    {
      name: "properties",
      label: "Properties",
      kind: "textarea",
      rows: 3,
      hint: "One per line: name=value",
    },
    { name: "body", label: "Body", kind: "textarea", rows: 8 },
  ];
  return html`<${Action}
    label="SEND MESSAGE"
    compact=${compact}
    spoken=${`SEND MESSAGE to ${topic}`}
    verb="Send"
    title=${`Send a message to ${topic}`}
    fields=${fields}
    send=${(values) =>
      call("POST", fill("/v1/topics/{topic}/messages", { topic }), { body: envelope(values) })}
    result=${(answer) => html`<${Sent} answer=${answer} topic=${topic} />`}
    done=${done}
  />`;
}

/** The fields of the form as the API's envelope. Pure. */
export function envelope({ keys, properties, body = "", ...rest }) {
  const lines = (properties || "").split("\n").filter((line) => line.includes("="));
  const pairs = lines.map((line) => {
    const at = line.indexOf("=");
    return [line.slice(0, at).trim(), line.slice(at + 1).trim()];
  });
  return {
    ...rest,
    body,
    ...(keys && { keys: keys.split(/\s+/).filter(Boolean) }),
    ...(pairs.length && { properties: Object.fromEntries(pairs) }),
  };
}

function Sent({ answer, topic }) {
  const { message_id: id, broker, queue_id: queue, offset, status } = answer;
  return html`<${Facts}
    of=${[
      [
        "Message ID",
        known(offset)
          ? html`<${MessageLink} id=${id} query=${{ topic }} />`
          : html`<code class="break">${id}</code>`,
      ],
      ["Status", status],
      ["Queue", `${broker}/${queue}`],
      [
        "Offset",
        known(offset)
          ? count(offset)
          : html`assigned when the delay ends; until then see <${Link} to=${["delayed"]}>delayed messages<//>`,
      ],
    ]}
  />`;
}

export function DeleteTopic({ topic, done, compact = true }) {
  return html`<${Action}
    label="DELETE"
    compact=${compact}
    spoken=${`DELETE ${topic}`}
    tone="danger"
    title=${`Delete the topic ${topic}`}
    name=${topic}
    previews
    send=${(_, preview) => call("DELETE", fill("/v1/topics/{topic}", { topic }), { query: { preview } })}
    shown=${(answer) => html`
      <${Facts}
        of=${[
          ["Messages kept", known(answer.messages) ? count(answer.messages) : null],
          ["Queues", answer.queues],
          ["Brokers", answer.brokers.join(", ")],
        ]}
      />
      <${Table}
        label="Consumer groups"
        rows=${answer.groups}
        empty="No group consumes it."
        columns=${[
          { key: "group", title: "Group" },
          { key: "lag_messages", title: "Lag", num: true },
        ]}
      />
    `}
    done=${done}
  />`;
}

/** RESET CONSUMER OFFSET: for one of the groups that consume the topic. */
export function ResetOffsets({ topic, compact = true }) {
  const fields = async () => [await groupField(topic), ...resetFields()];
  return html`<${Action}
    label="RESET CONSUMER OFFSET"
    compact=${compact}
    spoken=${`RESET CONSUMER OFFSET of ${topic}`}
    title=${`Reset a group's offsets on ${topic}`}
    verb="Reset"
    tone="danger"
    previews
    large
    fields=${fields}
    send=${({ group, ...body }, preview) =>
      call("POST", fill("/v1/groups/{group}/topics/{topic}/offsets/reset", { group, topic }), {
        query: { preview },
        body,
      })}
    shown=${(answer) => html`<${Moves} answer=${answer} />`}
  />`;
}

/** The choice of a group that consumes it; a text field, with the reason, if none is known. */
async function groupField(topic) {
  const field = { name: "group", label: "Group" };
  try {
    const { items } = await get("/v1/topics/{topic}/groups", { topic });
    const groups = items.map(({ group }) => group);
    return groups.length > 0
      ? { ...field, kind: "select", options: groups, value: groups[0] }
      : { ...field, required: true, hint: "No known consumer group." };
  } catch {
    // The change itself reports the error.
    return { ...field, required: true, hint: "The consumer groups could not be determined." };
  }
}
