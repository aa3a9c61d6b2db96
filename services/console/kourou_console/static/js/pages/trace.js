// The way to a trace: which message.

import { html, useState } from "../core/dom.js";
import { go } from "../core/route.js";
import { Field } from "../parts/fields.js";
import { Page } from "../parts/page.js";
import { Plain } from "../parts/panel.js";
import { Waterfall } from "../parts/waterfall.js";

const FIELDS = [
  { name: "id", label: "Message id", required: true },
  { name: "topic", label: "Topic", hint: "Not needed for an offset message id." },
];

export default function Trace({ query }) {
  const [values, setValues] = useState(query);
  const submit = (event) => {
    event.preventDefault();
    go(["trace"], values);
  };
  return html`<${Page} title="Trace">
    <${Plain} title="Of which message">
      <form class="ask" onSubmit=${submit}>
        ${FIELDS.map(
          (field) =>
            html`<${Field}
              field=${field}
              value=${values[field.name]}
              change=${(value) => setValues({ ...values, [field.name]: value })}
            />`,
        )}
        <button class="primary">Show</button>
      </form>
    <//>
    ${query.id && html`<${Waterfall} id=${query.id} query=${query} />`}
  <//>`;
}
