// A broker's settings: current values, defaults and allowed values; changing them.

import { call, fill } from "../core/api.js";
import { html, useState } from "../core/dom.js";
import { known } from "../core/format.js";
import { useAsk } from "../core/hooks.js";
import { Action, REASON } from "./action.js";
import { Panel } from "./panel.js";
import { Table } from "./table.js";
import { Badge, Unknown } from "./text.js";

export function Settings({ broker }) {
  const [changed, setChanged] = useState(false);
  const ask = useAsk("/v1/brokers/{broker}/config", { broker }, {}, { live: false });
  return html`<${Panel} title="Settings" ask=${ask} number=${ask.answer?.total}>
    ${(answer) =>
      html`<${Table}
        label="Settings"
        find="Filter settings"
        rows=${answer.items.filter((row) => row.changed || !changed)}
        rowKey=${({ name }) => name}
        empty="No setting was changed."
        tools=${html`<label class="check">
          <input type="checkbox" checked=${changed} onChange=${() => setChanged(!changed)} />
          Changed only
        </label>`}
        columns=${columns(broker, ask.refresh)}
      />`}
  <//>`;
}

function columns(broker, done) {
  return [
    {
      key: "name",
      title: "Setting",
      cell: ({ name }) => html`<code class="nowrap">${name}</code>`,
    },
    {
      key: "value",
      title: "Value",
      cell: ({ value }) => html`<code class="break">${value}</code>`,
    },
    {
      key: "changed",
      title: "Startup value",
      value: (row) => (row.changed ? row.configured : ""),
      cell: ({ changed, configured }) =>
        changed
          ? html`<code class="break">${configured ?? html`<${Unknown} />`}</code> <${Badge} tone="accent">changed<//>`
          : changed === null
            ? html`<${Unknown} />`
            : html`<span class="quiet">same</span>`,
    },
    { key: "range", title: "Allowed values", value: () => "", cell: (row) => allowed(row) },
    {
      key: "change",
      title: "",
      fixed: true,
      cell: (row) =>
        row.changeable
          ? html`<${Change} broker=${broker} setting=${row} done=${done} />`
          : html`<${Fixed} setting=${row} />`,
    },
  ];
}

function Fixed({ setting }) {
  if (setting.changeable === null) return html`<${Unknown} />`;
  return html`<details class="small quiet">
    <summary>restart required</summary>
    ${setting.why_not}
  </details>`;
}

function allowed({ kind, minimum, maximum, choices }) {
  if (choices.length) return choices.join(", ");
  if (known(minimum) || known(maximum)) return `${minimum ?? "…"} – ${maximum ?? "…"}`;
  return kind || html`<${Unknown} />`;
}

function Change({ broker, setting, done }) {
  const choices = setting.kind === "boolean" ? ["true", "false"] : setting.choices;
  const field = {
    name: "value",
    label: setting.name,
    value: setting.value,
    kind: choices.length ? "select" : "text",
    options: choices,
    whole: true,
  };
  return html`<${Action}
    label="Change"
    spoken=${`Change ${setting.name}`}
    title=${`Change ${setting.name} of ${broker}`}
    previews
    fields=${[field, REASON]}
    send=${({ value = "", reason }, preview) =>
      call("PATCH", fill("/v1/brokers/{broker}/config", { broker }), {
        query: { preview },
        body: { settings: { [setting.name]: value }, reason },
      })}
    shown=${(answer) => html`<${Changes} changes=${answer.changes} />`}
    done=${done}
  />`;
}

/** The differences that a change of a topic or a group makes, broker by broker. */
export const changesAtEach = (answer) =>
  answer.items.map(
    (item) =>
      html`<h3>${item.broker}${item.before ? "" : " (new)"}</h3>
        <${Changes} changes=${item.changes} />`,
  );

/** The changes of a preview: {name, before, after, refused?}. */
function Changes({ changes }) {
  return html`<${Table}
    label="Changes"
    rows=${changes}
    empty="No changes."
    columns=${[
      { key: "name", title: "Name", cell: ({ name }) => html`<code>${name}</code>` },
      { key: "before", title: "Now", cell: ({ before }) => text(before) },
      {
        key: "after",
        title: "Then",
        cell: ({ after, refused }) =>
          html`${text(after)} ${refused && html`<${Badge} tone="bad">${refused}<//>`}`,
      },
    ]}
  />`;
}

function text(value) {
  if (!known(value)) return html`<span class="quiet">none</span>`;
  return html`<code class="break">${typeof value === "string" ? value : JSON.stringify(value)}</code>`;
}
