// The choice of a message whose trace is shown.

import { html, useState } from "../core/dom.js";
import { go } from "../core/route.js";
import { AskForm } from "../parts/fields.js";
import { Page } from "../parts/page.js";
import { Plain } from "../parts/panel.js";
import { Waterfall } from "../parts/waterfall.js";

const FIELDS = [
  { name: "id", label: "Message ID", required: true },
  { name: "topic", label: "Topic", hint: "Not needed for an offset message ID." },
];

export default function Trace({ query }) {
  const [values, setValues] = useState(query);
  const submit = (event) => {
    event.preventDefault();
    go(["trace"], values);
  };
  return html`<${Page} title="Trace">
    <${Plain} title="Find a trace">
      <${AskForm} fields=${FIELDS} values=${values} setValues=${setValues} submit=${submit}>
        <button class="primary">Show</button>
      <//>
    <//>
    ${query.id && html`<${Waterfall} id=${query.id} query=${query} />`}
  <//>`;
}
