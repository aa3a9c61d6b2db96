// Search for messages: the latest, by key, by time, by ID.

import { html, useEffect, useState } from "../core/dom.js";
import { count, fieldTime, fromFieldTime, known, plural } from "../core/format.js";
import { useAsk } from "../core/hooks.js";
import { go, link } from "../core/route.js";
import { AskForm } from "../parts/fields.js";
import { MessagesTable } from "../parts/messages_table.js";
import { Page } from "../parts/page.js";
import { Panel, Plain } from "../parts/panel.js";
import { Table } from "../parts/table.js";
import { Link } from "../parts/text.js";

const QUARTER_MS = 15 * 60_000;
const COUNT = 50;
const COUNTS = [20, 50, 100, 200];
const MODES = [
  ["latest", "Latest"],
  ["key", "By key"],
  ["time", "By time"],
  ["id", "By ID"],
];

export default function Messages({ query }) {
  const by = query.by || (query.key ? "key" : "latest");
  const topics = useAsk("/v1/topics", {}, {}, { live: false });
  const names = topics.answer?.items.map(({ topic }) => topic) || [];
  return html`<${Page} title="Messages">
    <nav class="tabs" aria-label="Search">
      ${MODES.map(
        ([mode, label]) =>
          html`<a href=${link(["messages"], { by: mode, topic: query.topic })} aria-current=${mode === by ? "page" : undefined}
            >${label}</a
          >`,
      )}
    </nav>
    <${Plain} title=${MODES.find(([mode]) => mode === by)?.[1] || "Latest"}>
      <${Form} key=${by} by=${by} query=${query} />
    <//>
    <datalist id="topics">${names.map((name) => html`<option value=${name} />`)}</datalist>
    ${
      by === "latest"
        ? html`<${Latest} query=${query} topics=${topics} />`
        : html`<${Found} key=${JSON.stringify(query)} by=${by} query=${query} />`
    }
  <//>`;
}

const TOPIC = { name: "topic", label: "Topic", list: "topics", required: true };

function fieldsOf(by) {
  if (by === "id") {
    return [
      { name: "id", label: "Message ID", required: true },
      { ...TOPIC, required: false, hint: "Not needed for an offset message ID." },
    ];
  }
  if (by === "time") {
    return [
      TOPIC,
      { name: "from", label: "From", kind: "time", required: true },
      { name: "until", label: "Until", kind: "time", required: true },
      { name: "tag", label: "Tag" },
      { name: "sql", label: "SQL", hint: "Instead of tags: price > 10" },
    ];
  }
  if (by === "latest") {
    return [TOPIC, { name: "count", label: "Messages", kind: "select", options: COUNTS.map(String) }];
  }
  return [TOPIC, { name: "key", label: "Key", required: true }];
}

function Form({ by, query }) {
  const [values, setValues] = useState({
    from: fieldTime(Date.now() - QUARTER_MS),
    until: fieldTime(Date.now() + 1000),
    count: String(COUNT),
    ...query,
  });
  // The address may contain another topic than the field: one that was selected below.
  useEffect(() => {
    if (query.topic) setValues((was) => ({ ...was, topic: query.topic }));
  }, [query.topic]);
  const submit = (event) => {
    event.preventDefault();
    const { id, topic, key, from, until, tag, sql, count: most } = values;
    if (by === "id") go(["messages", id], { topic });
    else if (by === "latest") go(["messages"], { by, topic, count: most });
    else if (by === "key") go(["messages"], { by, topic, key });
    else go(["messages"], { by, topic, from, until, tag, sql });
  };
  return html`<${AskForm} fields=${fieldsOf(by)} values=${values} setValues=${setValues} submit=${submit}>
    <button class="primary">Search</button>
  <//>`;
}

function Latest({ query: { topic, count: most = COUNT }, topics }) {
  const wanted = { topic, latest: true, count: most };
  const ask = useAsk(topic ? "/v1/messages" : null, {}, wanted);
  if (!topic) return html`<${Choice} topics=${topics} />`;
  // "Latest" implies that there are older messages, so the list is not shown as truncated.
  const whole = { ...ask, answer: ask.answer && { ...ask.answer, truncated: false } };
  return html`<${Panel} title=${`Latest of ${topic}`} ask=${whole}>
    ${(answer) => html`
      <p class="told">${shownOf(answer)}</p>
      <${MessagesTable} label="Latest" rows=${answer.items} without=${["topic"]} empty="No message." />
    `}
  <//>`;
}

// The topics of the applications first: a cluster has more retry and system topics than those.
const KINDS = ["normal", "dlq", "retry", "system"];
const byKind = (one, other) => KINDS.indexOf(one.kind) - KINDS.indexOf(other.kind);

/** The choice of a topic: the list of topics until one is named. */
function Choice({ topics }) {
  return html`<${Panel} title="Choose a topic" ask=${topics} number=${topics.answer?.total}>
    ${({ items }) =>
      html`<${Table}
        label="Choose a topic"
        find="Filter topics"
        rows=${items.toSorted(byKind)}
        empty="No topic yet."
        columns=${[
          {
            key: "topic",
            title: "Topic",
            cell: ({ topic }) =>
              html`<${Link} to=${["messages"]} query=${{ by: "latest", topic }} class="break">${topic}<//>`,
          },
        ]}
      />`}
  <//>`;
}

function shownOf({ items, total }) {
  const kept = known(total) ? `${plural(total, "message")} stored` : "number of messages unknown";
  return `Latest ${count(items.length)} of all queues, newest first; ${kept}.`;
}

function Found({ by, query }) {
  const { topic, key, tag, sql } = query;
  const asked =
    by === "key"
      ? key && { topic, key }
      : by === "time" && query.from && timesOf({ ...query, tag, sql });
  const [cursors, setCursors] = useState([]);
  const ask = useAsk(
    asked && topic ? "/v1/messages" : null,
    {},
    asked ? { ...asked, cursor: cursors.at(-1) } : {},
    { live: false },
  );
  if (!asked || !topic) return null;
  return html`<${Panel} title="Found" ask=${ask}>
    ${(answer) => html`
      <${MessagesTable} label="Found" rows=${answer.items} without=${["topic"]} empty="No message." />
      ${
        (answer.cursor || cursors.length > 0) &&
        html`<div class="table-foot">
        Page ${cursors.length + 1}
        <button
          type="button"
          class="compact"
          disabled=${!cursors.length}
          onClick=${() => setCursors(cursors.slice(0, -1))}
        >
          Earlier
        </button>
        <button
          type="button"
          class="compact"
          disabled=${!answer.cursor}
          onClick=${() => setCursors([...cursors, answer.cursor])}
        >
          Later
        </button>
      </div>`
      }
    `}
  <//>`;
}

function timesOf({ topic, from, until, tag, sql }) {
  return {
    topic,
    tag,
    sql,
    from_ms: fromFieldTime(from),
    until_ms: fromFieldTime(until),
    count: 50,
  };
}
