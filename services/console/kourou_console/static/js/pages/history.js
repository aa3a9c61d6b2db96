// Control history: the control events, and the state at any time.

import { html, useState } from "../core/dom.js";
import { fieldTime, fromFieldTime } from "../core/format.js";
import { useAsk } from "../core/hooks.js";
import { go } from "../core/route.js";
import { Decisions } from "../parts/decisions.js";
import { AskForm } from "../parts/fields.js";
import { Page } from "../parts/page.js";
import { Panel, Plain } from "../parts/panel.js";
import { Facts, Time } from "../parts/text.js";

const KINDS = ["", "topic", "group", "setting", "progress", "filter"];

export default function History({ query }) {
  const brokers = useAsk("/v1/brokers", {}, {}, { live: false });
  const names = brokers.answer?.items.map(({ broker }) => broker) || [];
  const { kind, name, broker, until } = query;
  return html`<${Page} title="Control history">
    <${Plain} title="Filter"><${Which} query=${query} brokers=${names} /><//>
    <${Decisions}
      key=${JSON.stringify(query)}
      title="Changes, newest first"
      query=${{ kind, name, broker, until_ms: fromFieldTime(until) }}
    />
    <${AsOf} brokers=${names} />
  <//>`;
}

function Which({ query, brokers }) {
  const [values, setValues] = useState(query);
  const fields = [
    { name: "broker", label: "Broker", kind: "select", options: [["", "all"], ...brokers] },
    {
      name: "kind",
      label: "Kind",
      kind: "select",
      options: KINDS.map((kind) => [kind, kind || "all"]),
    },
    { name: "name", label: "Name" },
    { name: "until", label: "Until", kind: "time" },
  ];
  const submit = (event) => {
    event.preventDefault();
    go(["history"], values);
  };
  return html`<${AskForm} fields=${fields} values=${values} setValues=${setValues} submit=${submit}>
    <button class="primary">Show</button>
  <//>`;
}

function AsOf({ brokers }) {
  const [values, setValues] = useState({ kind: "topic", at: fieldTime(Date.now()) });
  const [asked, setAsked] = useState(null);
  const ask = useAsk(asked && "/v1/history/state", {}, asked || {}, { live: false });
  const fields = [
    { name: "broker", label: "Broker", kind: "select", options: brokers },
    { name: "kind", label: "Kind", kind: "select", options: KINDS.slice(1) },
    { name: "name", label: "Name", required: true },
    { name: "at", label: "As of", kind: "time", required: true },
  ];
  const submit = (event) => {
    event.preventDefault();
    const broker = values.broker || brokers[0];
    setAsked({
      broker,
      aggregate: `${values.kind}/${values.name}`,
      at_ms: fromFieldTime(values.at),
    });
  };
  return html`<${Plain} title="State at a time">
    <${AskForm} fields=${fields} values=${values} setValues=${setValues} submit=${submit}>
      <button class="primary">Show</button>
    <//>
    ${
      asked &&
      html`<${Panel} title=${`${asked.aggregate} at ${asked.broker}`} ask=${ask}>
      ${(answer) => html`
        <${Facts} of=${[
          ["As of", html`<${Time} ms=${asked.at_ms} />`],
          ["Next offset", answer.next_offset],
        ]} />
        <pre tabindex="0" aria-label="State">${
          answer.value === null ? "It did not exist." : JSON.stringify(answer.value, null, 2)
        }</pre>
      `}
    <//>`
    }
  <//>`;
}
