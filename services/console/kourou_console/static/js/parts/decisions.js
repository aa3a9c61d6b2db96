// Control events: who changed what, when and why; earlier states, and undo.

import { call, get } from "../core/api.js";
import { html, useEffect, useState } from "../core/dom.js";
import { useAsk } from "../core/hooks.js";
import { Action, REASON } from "./action.js";
import { BROKER } from "./columns.js";
import { Dialog } from "./dialog.js";
import { Refusal } from "./notice.js";
import { Panel } from "./panel.js";
import { Table } from "./table.js";
import { Badge, Time } from "./text.js";

const PAGE = 50;
const NONE = { items: [], cursor: undefined, busy: false, problem: null };

/** A panel with the `/v1/history` events for `query`, page by page. */
export function Decisions({ title, query }) {
  const ask = useAsk("/v1/history", {}, { count: PAGE, ...query }, { live: false });
  const [more, setMore] = useState(NONE);
  const key = JSON.stringify(query);
  useEffect(() => setMore({ ...NONE }), [key, ask.answer]);
  const cursor = more.cursor === undefined ? ask.answer?.cursor : more.cursor;
  const next = async () => {
    const asking = { ...more, busy: true, problem: null };
    // No duplicates, and no events of an earlier query.
    const came = (found) =>
      setMore((was) => (was === asking ? { ...was, ...found, busy: false } : was));
    setMore(asking);
    try {
      const page = await get("/v1/history", {}, { count: PAGE, ...query, cursor });
      came({ items: [...more.items, ...page.items], cursor: page.cursor });
    } catch (problem) {
      came({ problem });
    }
  };
  // Further pages are loaded below, so the list is not shown as truncated.
  const whole = { ...ask, answer: ask.answer && { ...ask.answer, truncated: false } };
  return html`<${Panel} title=${title} ask=${whole}>
    ${(answer) => html`
      <${Table}
        label=${title}
        find="Filter"
        rows=${[...answer.items, ...more.items]}
        rowKey=${({ broker, offset }) => `${broker}/${offset}`}
        empty="No changes."
        columns=${columns(ask.refresh)}
      />
      <${Refusal} problem=${more.problem} />
      ${
        cursor &&
        html`<div class="table-foot">
        Older changes exist.
        <button type="button" class="compact" disabled=${more.busy} onClick=${next}>
          Show older
        </button>
      </div>`
      }
    `}
  <//>`;
}

function columns(done) {
  return [
    { key: "at_ms", title: "When", cell: ({ at_ms: ms }) => html`<${Time} ms=${ms} />` },
    BROKER,
    { key: "type", title: "Change" },
    {
      key: "name",
      title: "Of",
      value: ({ kind, name }) => `${kind} ${name}`,
      cell: ({ kind, name }) => html`<${Badge}>${kind}<//> <span class="break">${name}</span>`,
    },
    {
      key: "actor",
      title: "By",
      cell: ({ actor }) => html`<span class="break">${actor || "the service"}</span>`,
    },
    {
      key: "reason",
      title: "Reason",
      cell: ({ reason, undoes }) =>
        html`<span class="break">${reason}</span> ${undoes !== null && html`<${Badge} tone="warn">undoes ${undoes}<//>`}`,
    },
    {
      key: "actions",
      title: "",
      fixed: true,
      cell: (row) => html`<div class="row-actions">
        <${Show} row=${row} />
        ${row.final === null ? html`<${Undo} row=${row} done=${done} />` : html`<${Final} why=${row.final} />`}
      </div>`,
    },
  ];
}

const named = (row) => `${row.type} of ${row.kind} ${row.name}`;

function Show({ row }) {
  const [open, setOpen] = useState(false);
  return html`
    <button
      type="button"
      class="compact"
      aria-label=${`Show ${named(row)}, offset ${row.offset}`}
      onClick=${() => setOpen(true)}
    >
      Show
    </button>
    ${
      open &&
      html`<${Dialog} title=${named(row)} close=${() => setOpen(false)} large>
      <div class="content">
        <h3>Change details</h3>
        <pre tabindex="0" aria-label="Change details">${JSON.stringify(row.fields, null, 2)}</pre>
        <${Before} row=${row} />
      </div>
      <footer><button type="button" class="primary" onClick=${() => setOpen(false)}>Close</button></footer>
    <//>`
    }
  `;
}

function Before({ row }) {
  const { broker, aggregate, offset } = row;
  const ask = useAsk(
    offset > 0 ? "/v1/history/state" : null,
    {},
    { broker, aggregate, offset: offset - 1 },
    { live: false },
  );
  if (offset === 0) return html`<p>This is the first event.</p>`;
  return html`<${Panel} title=${`${aggregate} before it`} ask=${ask}>
    ${({ value }) =>
      html`<pre tabindex="0" aria-label="State before">${
        value === null ? "It did not exist." : JSON.stringify(value, null, 2)
      }</pre>`}
  <//>`;
}

/** In place of the button; the reason is in the tooltip, and read by screen readers. */
function Final({ why }) {
  return html`<span class="quiet small no-undo" title=${why}>
    <span aria-hidden="true">no undo</span><span class="hidden-label">No undo: ${why}</span>
  </span>`;
}

function Undo({ row, done }) {
  return html`<${Action}
    label="Undo"
    spoken=${`Undo ${named(row)}, offset ${row.offset}`}
    title=${`Undo ${named(row)} at ${row.broker}`}
    previews
    fields=${[
      REASON,
      {
        name: "force",
        label: "Even if later changes depend on it",
        kind: "checkbox",
        whole: true,
      },
    ]}
    send=${(values, preview) =>
      call("POST", "/v1/history/undo", {
        query: { preview },
        body: { broker: row.broker, offset: row.offset, ...values },
      })}
    shown=${(answer) =>
      answer.items.length > 0 &&
      html`<pre tabindex="0" aria-label="Preview">${JSON.stringify(
        answer.items.map(({ type, name, fields }) => ({ type, name, fields })),
        null,
        2,
      )}</pre>`}
    done=${done}
  />`;
}
