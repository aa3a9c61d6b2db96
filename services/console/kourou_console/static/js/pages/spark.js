// Spark: the running queries, and the tables that they write.

import { html, useState } from "../core/dom.js";
import { isMoment, known } from "../core/format.js";
import { useAsk } from "../core/hooks.js";
import { AskForm } from "../parts/fields.js";
import { Notice } from "../parts/notice.js";
import { Page } from "../parts/page.js";
import { Panel, Plain } from "../parts/panel.js";
import { Table } from "../parts/table.js";
import { Badge, Duration, Link, Time } from "../parts/text.js";

const PHASES = { running: "good", failed: "bad" };

export default function Spark({ table }) {
  const ask = useAsk("/v1/spark");
  const tables = useAsk("/v1/spark/tables");
  return html`<${Page} title=${table ? `Table ${table}` : "Spark"} up=${table ? [[["spark"], "Spark"]] : []}>
    ${
      table
        ? html`<${Rows} table=${table} />`
        : html`
          <${Panel} title="Queries" ask=${ask}>${(answer) => html`<${Queries} answer=${answer} />`}<//>
          <${Panel} title="Tables" ask=${tables}>${(answer) => html`<${Tables} answer=${answer} />`}<//>
        `
    }
  <//>`;
}

function Away({ answer }) {
  // Missing parts are reported above; this is for a response without any.
  if (answer.missing?.length) return null;
  return html`<${Notice} tone="warn">
    Spark cannot be asked: ${answer.why || "no address is configured."}
  <//>`;
}

function Queries({ answer }) {
  if (!answer.available) return html`<${Away} answer=${answer} />`;
  return html`<${Table}
    label="Queries"
    rows=${answer.queries}
    empty="No query runs."
    columns=${[
      { key: "query", title: "Query" },
      { key: "job", title: "Job" },
      {
        key: "phase",
        title: "Phase",
        cell: ({ phase }) => html`<${Badge} tone=${PHASES[phase] || ""}>${phase}<//>`,
      },
      { key: "batches", title: "Batches", num: true, value: ({ figures }) => figures.batches },
      { key: "rows", title: "Rows", num: true, value: ({ figures }) => figures.rows },
      {
        key: "last",
        title: "Last batch",
        num: true,
        value: ({ figures }) => figures.last?.batch_id,
      },
      {
        key: "began_ms",
        title: "Started",
        value: ({ figures }) => figures.last?.began_ms,
        cell: ({ figures }) => html`<${Time} ms=${figures.last?.began_ms} />`,
      },
      {
        key: "took_ms",
        title: "Duration",
        num: true,
        value: ({ figures }) => figures.last?.took_ms,
        cell: ({ figures }) => html`<${Duration} of=${figures.last?.took_ms} />`,
      },
      {
        key: "error",
        title: "Error",
        wide: true,
        cell: ({ error }) => error || html`<span class="quiet">none</span>`,
      },
    ]}
  />`;
}

function Tables({ answer }) {
  if (!answer.available) return html`<${Away} answer=${answer} />`;
  return html`<${Table}
    label="Tables"
    rows=${answer.items}
    empty="No table."
    columns=${[
      {
        key: "table",
        title: "Table",
        cell: ({ table }) => html`<${Link} to=${["spark", table]}>${table}<//>`,
      },
      {
        key: "columns",
        title: "Columns",
        wide: true,
        value: ({ columns }) => columns.join(", "),
      },
      { key: "about", title: "About", wide: true },
    ]}
  />`;
}

const FIELDS = [
  { name: "where", label: "Where", placeholder: "column=value" },
  { name: "order", label: "Order", placeholder: "-column" },
  { name: "limit", label: "Rows", kind: "number", min: 1, max: 1000 },
];

function Rows({ table }) {
  const [values, setValues] = useState({ where: "", order: "", limit: "100" });
  const [asked, setAsked] = useState(values);
  const ask = useAsk("/v1/spark/tables/{table}", { table }, asked);
  const submit = (event) => {
    event.preventDefault();
    setAsked(values);
  };
  // Outside the panel, so that a rejected condition can be corrected.
  return html`
    <${Plain} title="Filter">
      <${AskForm} fields=${FIELDS} values=${values} setValues=${setValues} submit=${submit}>
        <button class="primary">Show</button>
      <//>
    <//>
    <${Panel} title="Rows" ask=${ask} number=${ask.answer?.total}>
      ${(answer) =>
        answer.available
          ? html`<${Table}
              label="Rows"
              rows=${answer.items}
              empty="No row."
              columns=${answer.columns.map((name) => ({
                key: name,
                title: name,
                num: answer.items.some((row) => typeof row[name] === "number"),
                cell: (row) => cell(name, row[name]),
              }))}
            />`
          : html`<${Away} answer=${answer} />`}
    <//>
  `;
}

function cell(name, value) {
  if (isMoment(name, value)) return html`<${Time} ms=${value} />`;
  if (name.endsWith("_ms") && known(value)) return html`<${Duration} of=${value} />`;
  return known(value) ? String(value) : html`<span class="quiet">null</span>`;
}
