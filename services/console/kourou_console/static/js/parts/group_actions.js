// Actions of a group: create or change it, move its offsets, deliver a message, delete it.

import { call, fill } from "../core/api.js";
import { html } from "../core/dom.js";
import { count, known } from "../core/format.js";
import { Action, REASON } from "./action.js";
import { Moves, resetFields } from "./moves.js";
import { changesAtEach } from "./settings.js";
import { Facts } from "./text.js";

/** Creates a group, or changes the one described by `config` (a GroupConfig). */
export function PutGroup({ group, config, label, done, compact = false }) {
  const flag = (name, label) => ({
    name,
    label,
    kind: "flag",
    value: config && String(config[name]),
  });
  const hint = group ? undefined : "Empty: unchanged.";
  const fields = [
    { name: "group", label: "Group", required: true, when: () => !group },
    {
      name: "attempts",
      label: "Max retries",
      kind: "number",
      min: 0,
      value: config?.attempts,
      hint: "After these, a message becomes a dead letter. Default 16.",
    },
    {
      name: "retry_queues",
      label: "Retry queues",
      kind: "number",
      min: 1,
      value: config?.retry_queues,
      hint,
    },
    flag("consume_enabled", "Consumption enabled"),
    flag("from_min_enabled", "Consume from minimum offset"),
    flag("broadcast_enabled", "Broadcasting enabled"),
    { name: "broker", label: "Broker", hint: "Empty: all.", value: config?.broker },
    REASON,
  ];
  return html`<${Action}
    label=${label}
    compact=${compact}
    spoken=${group && `${label} ${group} at ${config.broker}`}
    verb=${group ? "Change" : "Write"}
    title=${group ? `Change ${group}` : "Add or update a group"}
    previews
    large
    fields=${fields}
    send=${({ group: typed, ...body }, preview) =>
      call("PUT", fill("/v1/groups/{group}", { group: group || typed }), {
        query: { preview },
        body,
      })}
    shown=${changesAtEach}
    done=${done}
  />`;
}

/** The choice of a topic; the mark of dead letters is no lag to skip or reset. Pure. */
export function topicField(topics = []) {
  const field = { name: "topic", label: "Topic" };
  const options = topics.filter((topic) => !topic.startsWith("%DLQ%"));
  return options.length > 0
    ? { ...field, kind: "select", options, value: options[0] }
    : { ...field, required: true };
}

export function ResetGroup({ group, topics, done }) {
  return html`<${Action}
    label="Reset offsets"
    compact=${false}
    tone="danger"
    title=${`Reset the offsets of ${group}`}
    verb="Reset"
    previews
    large
    fields=${[topicField(topics), ...resetFields()]}
    send=${({ topic, ...body }, preview) =>
      call("POST", fill("/v1/groups/{group}/topics/{topic}/offsets/reset", { group, topic }), {
        query: { preview },
        body,
      })}
    shown=${(answer) => html`<${Moves} answer=${answer} />`}
    done=${done}
  />`;
}

export function SkipLag({ group, topics, done }) {
  return html`<${Action}
    label="Skip backlog"
    compact=${false}
    tone="danger"
    title=${`Skip the backlog of ${group}`}
    verb="Skip"
    previews
    large
    fields=${[topicField(topics), REASON]}
    send=${({ topic, ...body }, preview) =>
      call("POST", fill("/v1/groups/{group}/topics/{topic}/offsets/skip", { group, topic }), {
        query: { preview },
        body,
      })}
    shown=${(answer) => html`<${Moves} answer=${answer} />`}
    done=${done}
  />`;
}

export function CloneOffsets({ group, done }) {
  return html`<${Action}
    label="Clone offsets"
    compact=${false}
    tone="danger"
    title=${`Copy the offsets of another group to ${group}`}
    verb="Clone"
    previews
    large
    fields=${[
      { name: "from_group", label: "From group", required: true },
      { name: "topic", label: "Topic", hint: "Empty: all topics of that group." },
      REASON,
    ]}
    send=${(body, preview) =>
      call("POST", fill("/v1/groups/{group}/offsets/clone", { group }), {
        query: { preview },
        body,
      })}
    shown=${(answer) => html`<${Moves} answer=${answer} />`}
    done=${done}
  />`;
}

export function DeleteGroup({ group, done }) {
  return html`<${Action}
    label="Delete"
    compact=${false}
    tone="danger"
    title=${`Delete the group ${group}`}
    name=${group}
    previews
    fields=${[
      {
        name: "remove_offsets",
        label: "Delete its offsets as well",
        kind: "checkbox",
        hint: "If the group is created again, it starts without offsets.",
        whole: true,
      },
    ]}
    send=${(values, preview) =>
      call("DELETE", fill("/v1/groups/{group}", { group }), { query: { preview, ...values } })}
    shown=${(answer) =>
      html`<${Facts}
        of=${[
          ["Consumers", known(answer.members) ? count(answer.members) : null],
          ["Lag", known(answer.lag_messages) ? count(answer.lag_messages) : null],
          ["Topics", answer.topics.join(", ") || "none"],
        ]}
      />`}
    done=${done}
  />`;
}

/** Delivers one stored message to one consumer of a group, now. */
export function ConsumeDirectly({ topic, id, group, compact = true }) {
  return html`<${Action}
    label="Consume directly"
    compact=${compact}
    title="Deliver this message to a consumer now"
    verb="Deliver"
    warning="The consumer handles it, even if it has consumed it before. Offsets do not change."
    fields=${[
      { name: "group", label: "Group", required: true, value: group },
      { name: "client", label: "Client", hint: "Empty: any consumer." },
    ]}
    send=${({ group: typed, ...body }) =>
      call("POST", fill("/v1/groups/{group}/direct", { group: typed }), {
        body: { topic, message_id: id, ...body },
      })}
    result=${(answer) =>
      html`<${Facts}
        of=${[
          ["Result", answer.result],
          ["Duration", `${answer.took_ms} ms`],
          ["Remark", answer.remark || "none"],
        ]}
      />`}
  />`;
}

/** Why a group without a configuration is listed. Pure. */
export function leftOf({ system, members }, missing) {
  if (missing.length) return "some brokers do not respond";
  if (system) return "by default";
  return members > 0 ? "deleted; consumers are connected" : "deleted; offsets kept";
}
