// "Why?": the causes of a message's state, first of the message, then of each group.

import { html } from "../core/dom.js";
import { count, isMoment, known, time } from "../core/format.js";
import { useAsk } from "../core/hooks.js";
import { GROUP } from "./columns.js";
import { Notice } from "./notice.js";
import { Panel } from "./panel.js";
import { Table } from "./table.js";
import { Badge, Bytes, Duration, Facts, Flag, GroupLink, Time, TopicLink } from "./text.js";

const TONES = { ok: "good", waiting: "warn", blocked: "bad", gone: "bad" };

export function Why({ id, query }) {
  const { topic, group } = query;
  const ask = useAsk("/v1/messages/{id}/explain", { id }, { topic, group }, { live: false });
  return html`
    <${Panel} title="Why?" ask=${ask}>${(answer) => html`<${Answer} answer=${answer} />`}<//>
    ${
      ask.answer?.storage &&
      html`<${Panel} title="Stored" ask=${ask}>${({ storage }) => html`<${Storage} storage=${storage} />`}<//>`
    }
    ${
      ask.answer?.places?.length > 0 &&
      html`<${Panel} title="All copies, oldest first" ask=${ask}>
      ${({ places }) => html`<${Places} places=${places} />`}
    <//>`
    }
    ${ask.answer?.groups.map(
      (one) =>
        html`<${Panel} key=${one.group} title=${`Group ${one.group}`} ask=${ask}>
          ${() => html`<${OneGroup} one=${one} />`}
        <//>`,
    )}
  `;
}

function Answer({ answer }) {
  const { others, message } = answer;
  return html`
    <${Causes} causes=${answer.causes} />
    ${
      others > 0 &&
      html`<${Notice} tone="warn">
      ${count(others)} more with this key; the newest is explained.
    <//>`
    }
    ${
      message &&
      html`<${Facts}
      of=${[
        ["Topic", html`<${TopicLink} topic=${message.topic} />`],
        ["Queue offset", `${message.broker}/${message.queue_id}@${message.offset}`],
        ["Stored", html`<${Time} ms=${message.stored_ms} />`],
        ["Attempts", count(message.attempts)],
      ]}
    />`
    }
    ${
      answer.groups.length > 0 &&
      html`<${Table}
      label="Explanation by group"
      rows=${answer.groups}
      columns=${[
        GROUP,
        {
          key: "cause",
          title: "Explanation",
          wide: true,
          value: ({ causes }) => causes[0].title,
          cell: ({ causes: [cause] }) =>
            html`<${Badge} tone=${TONES[cause.severity]}>${cause.title}<//> ${cause.sentence}`,
        },
      ]}
    />`
    }
  `;
}

function Causes({ causes }) {
  return html`<ol class="causes">
    ${causes.map(
      (cause) =>
        html`<li>
          <div class="row">
            <${Badge} tone=${TONES[cause.severity]}>${cause.title}<//>
            <code class="quiet">${cause.code}</code>
          </div>
          <p>${cause.sentence}</p>
          ${cause.advice && html`<p class="quiet">${cause.advice}</p>`}
          <${CauseFacts} facts=${cause.facts} />
        </li>`,
    )}
  </ol>`;
}

function CauseFacts({ facts }) {
  const entries = Object.entries(facts || {});
  if (!entries.length) return null;
  return html`<details>
    <summary>Facts</summary>
    <${Facts} of=${entries.map(([name, value]) => [name.replaceAll("_", " "), fact(name, value)])} />
  </details>`;
}

function fact(name, value) {
  if (!known(value)) return null;
  if (isMoment(name, value)) return time(value);
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}

function Storage({ storage }) {
  return html`
    <${Facts}
      of=${[
        ["Flushed to disk", html`<${Flag} of=${storage.flushed} bad="no" />`],
        ["Committed", html`<${Flag} of=${storage.confirmed} bad="no" />`],
        ["End position", count(storage.position_end)],
      ]}
    />
    <${Table}
      label="Replicas"
      rows=${storage.copies}
      empty="The broker has no replica."
      columns=${[
        { key: "address", title: "Replica", cell: (row) => html`<code>${row.address}</code>` },
        {
          key: "role",
          title: "Role",
          cell: ({ role, state }) => html`<${Badge}>${role}<//> ${state}`,
        },
        {
          key: "written",
          title: "Written",
          cell: (row) => html`<${Flag} of=${row.written} bad="no" />`,
        },
        { key: "flushed", title: "Flushed", cell: (row) => html`<${Flag} of=${row.flushed} />` },
        {
          key: "in_sync",
          title: "In sync",
          cell: (row) => html`<${Flag} of=${row.in_sync} bad="no" />`,
        },
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
        { key: "why", title: "Note", wide: true },
      ]}
    />
  `;
}

function Places({ places }) {
  return html`<${Table}
    label="Copies"
    rows=${places}
    columns=${[
      {
        key: "kind",
        title: "Kind",
        cell: ({ kind }) => html`<${Badge}>${kind.replaceAll("_", " ")}<//>`,
      },
      { key: "topic", title: "Topic", cell: ({ topic }) => html`<${TopicLink} topic=${topic} />` },
      {
        key: "place",
        title: "Queue offset",
        value: (row) => `${row.broker}/${row.queue_id}@${row.offset}`,
      },
      { key: "stored_ms", title: "Stored", cell: (row) => html`<${Time} ms=${row.stored_ms} />` },
      { key: "attempts", title: "Attempts", num: true },
      {
        key: "group",
        title: "Group",
        cell: ({ group }) => group && html`<${GroupLink} group=${group} />`,
      },
    ]}
  />`;
}

function OneGroup({ one }) {
  return html`
    <${Causes} causes=${one.causes} />
    <${Facts}
      of=${[
        ["Next offset", known(one.next_offset) ? count(one.next_offset) : null],
        ["End of the queue", known(one.queue_end) ? count(one.queue_end) : null],
      ]}
    />
    ${
      one.deliveries.length > 0 &&
      html`<${Table}
      label="Deliveries"
        titled
      rows=${one.deliveries}
      columns=${[
        { key: "at_ms", title: "Delivered", cell: (row) => html`<${Time} ms=${row.at_ms} />` },
        { key: "attempt", title: "Attempt", num: true },
        { key: "ended_ms", title: "Ended", cell: (row) => html`<${Time} ms=${row.ended_ms} />` },
        { key: "ok", title: "Success", cell: (row) => html`<${Flag} of=${row.ok} bad="no" />` },
        { key: "how", title: "How" },
      ]}
    />`
    }
    <${Table}
      label="Consumers"
        titled
      rows=${one.members}
      empty="No consumer is connected."
      columns=${[
        {
          key: "client_id",
          title: "Consumer",
          cell: (row) => html`<code class="break">${row.client_id}</code>`,
        },
        {
          key: "subscription",
          title: "Subscription",
          cell: (row) => row.subscription && html`<code class="break">${row.subscription}</code>`,
        },
        {
          key: "holds_queue",
          title: "Owns the queue",
          cell: (row) => html`<${Flag} of=${row.holds_queue} />`,
        },
        { key: "commit_offset", title: "Committed", num: true },
        { key: "cached", title: "Cached", num: true },
        { key: "why", title: "Note" },
      ]}
    />
  `;
}
