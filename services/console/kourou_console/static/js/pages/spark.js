// Spark: the queries that run, and the tables that they fill.

import { html, useState } from "../core/dom.js";
import { figure, known } from "../core/format.js";
import { useAsk } from "../core/hooks.js";
import { Field } from "../parts/fields.js";
import { Notice } from "../parts/notice.js";
import { Page } from "../parts/page.js";
import { Panel } from "../parts/panel.js";
import { Table } from "../parts/table.js";
import { Badge, Duration, Link, Time, Value } from "../parts/text.js";

const PHASES = { running: "good", failed: "bad", stopped: "warn" };

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
  // What is missing stands above; this is for an answer that names nothing.
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
      { key: "since_ms", title: "Since", cell: (row) => html`<${Time} ms=${row.since_ms} />` },
      { key: "batch", title: "Batch", num: true },
      {
        key: "rows_per_s",
        title: "Rows/s",
        num: true,
        cell: (row) => html`<${Value} of=${row.rows_per_s} format=${figure} />`,
      },
      {
        key: "last_batch_ms",
        title: "Last batch took",
        num: true,
        cell: (row) => html`<${Duration} of=${row.last_batch_ms} />`,
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
        value: ({ columns }) => columns.map(({ name }) => name).join(", "),
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
  return html`<${Panel} title="Rows" ask=${ask} number=${ask.answer?.total}>
    ${(answer) =>
      answer.available
        ? html`<form class="ask" onSubmit=${submit}>
              ${FIELDS.map(
                (field) =>
                  html`<${Field}
                    field=${field}
                    value=${values[field.name]}
                    change=${(value) => setValues({ ...values, [field.name]: value })}
                  />`,
              )}
              <button>Show</button>
            </form>
            <${Table}
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
  <//>`;
}

function cell(name, value) {
  if (name.endsWith("_ms") && typeof value === "number") return html`<${Time} ms=${value} />`;
  return known(value) ? String(value) : html`<span class="quiet">null</span>`;
}
