// Audit: refused requests, and requests that were allowed to change something.

import { html, useState } from "../core/dom.js";
import { fromFieldTime } from "../core/format.js";
import { useAsk } from "../core/hooks.js";
import { go } from "../core/route.js";
import { BROKER } from "../parts/columns.js";
import { AskForm } from "../parts/fields.js";
import { Page } from "../parts/page.js";
import { Panel, Plain } from "../parts/panel.js";
import { SaveButton } from "../parts/save_button.js";
import { Table } from "../parts/table.js";
import { Badge, Time } from "../parts/text.js";

const PAGE = 50;
const DECISIONS = [
  ["", "all"],
  ["refused", "refused"],
  ["allowed", "allowed"],
];

export default function Audit({ query }) {
  const { broker, user, request, decision, since, until } = query;
  const times = { since_ms: fromFieldTime(since), until_ms: fromFieldTime(until) };
  const wanted = { broker, user, request, decision, ...times };
  const save = html`<${SaveButton}
    label="Export as JSON lines"
    path="/v1/audit/export"
    query=${wanted}
    name="audit.jsonl"
  />`;
  return html`<${Page} title="Audit" actions=${save}>
    <${Plain} title="Filter"><${Which} query=${query} /><//>
    <${Entries} key=${JSON.stringify(query)} wanted=${wanted} />
  <//>`;
}

function Which({ query }) {
  const [values, setValues] = useState(query);
  const brokers = useAsk("/v1/brokers", {}, {}, { live: false });
  const names = brokers.answer?.items.map(({ broker }) => broker) || [];
  const fields = [
    { name: "decision", label: "Decision", kind: "select", options: DECISIONS },
    { name: "user", label: "User" },
    { name: "request", label: "Request", placeholder: "SendMessage" },
    { name: "broker", label: "Broker", kind: "select", options: [["", "all"], ...names] },
    { name: "since", label: "Since", kind: "time" },
    { name: "until", label: "Until", kind: "time" },
  ];
  const submit = (event) => {
    event.preventDefault();
    go(["audit"], values);
  };
  return html`<${AskForm} fields=${fields} values=${values} setValues=${setValues} submit=${submit}>
    <button class="primary">Show</button>
  <//>`;
}

/** One page at a time; `cursors` are those of the second page up to this one. */
function Entries({ wanted }) {
  const [cursors, setCursors] = useState([]);
  const query = { count: PAGE, ...wanted, cursor: cursors.at(-1) };
  const ask = useAsk("/v1/audit", {}, query, { live: false });
  // Further pages have buttons, so the list is not shown as truncated.
  const whole = { ...ask, answer: ask.answer && { ...ask.answer, truncated: false } };
  return html`<${Panel} title="Requests, newest first" ask=${whole}>
    ${(answer) => html`
      <${Table}
        label="Requests, newest first"
        find="Filter"
        rows=${answer.items}
        empty=${nothing(wanted, answer.cursor || cursors.length)}
        columns=${COLUMNS}
      />
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
          Newer
        </button>
        <button
          type="button"
          class="compact"
          disabled=${!answer.cursor}
          onClick=${() => setCursors([...cursors, answer.cursor])}
        >
          Older
        </button>
      </div>`
      }
    `}
  <//>`;
}

/** Why there are no rows. */
function nothing(wanted, amongPages) {
  if (amongPages) return "Nothing on this page.";
  if (Object.values(wanted).some((value) => value)) return "No request matches.";
  return "No request was refused, and none changed anything, since there are users.";
}

const COLUMNS = [
  { key: "at_ms", title: "When", cell: ({ at_ms: ms }) => html`<${Time} ms=${ms} />` },
  {
    key: "decision",
    title: "Decision",
    cell: ({ decision, handled }) => {
      if (decision === "allowed") return html`<${Badge}>allowed<//>`;
      return html`<${Badge} tone="bad">refused<//> ${handled && html`<${Badge} tone="warn">observed<//>`}`;
    },
  },
  { key: "count", title: "Requests", num: true },
  { key: "user", title: "User", cell: ({ user }) => html`<span class="break">${user}</span>` },
  { key: "source", title: "From" },
  { key: "door", title: "Door" },
  { key: "console", title: "Through" },
  { key: "request", title: "Request" },
  { key: "need", title: "Needs", cell: ({ need }) => html`<span class="break">${need}</span>` },
  { key: "by", title: "Decided by", cell: ({ by }) => html`<span class="break">${by}</span>` },
  BROKER,
];
