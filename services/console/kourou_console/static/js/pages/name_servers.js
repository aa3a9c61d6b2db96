// Name servers: their status, their settings, and the key/value settings by namespace.

import { call, fill } from "../core/api.js";
import { html, useState } from "../core/dom.js";
import { useAsk } from "../core/hooks.js";
import { Action } from "../parts/action.js";
import { Field } from "../parts/fields.js";
import { Page } from "../parts/page.js";
import { Panel } from "../parts/panel.js";
import { Table } from "../parts/table.js";
import { Flag } from "../parts/text.js";

const NAMESPACE = { name: "namespace", label: "Namespace" };

export default function NameServers() {
  const ask = useAsk("/v1/name-servers");
  return html`<${Page} title="Name servers">
    <${Panel} title="Addresses" ask=${ask}>
      ${(answer) =>
        html`<${Table}
          label="Name servers"
          rows=${answer.items}
          columns=${[
            {
              key: "address",
              title: "Address",
              cell: ({ address }) => html`<code>${address}</code>`,
            },
            {
              key: "up",
              title: "State",
              cell: ({ up, why }) =>
                html`<${Flag} of=${up} yes="up" no="offline" bad="no" /> ${why && html`<span class="quiet">${why}</span>`}`,
            },
          ]}
        />`}
    <//>
    <${Panel} title="Settings" ask=${ask} follows>
      ${(answer) => html`<${Settings} items=${answer.items} />`}
    <//>
    <${Values} />
  <//>`;
}

function Settings({ items }) {
  const rows = items.flatMap(({ address, settings }) =>
    Object.entries(settings || {}).map(([name, value]) => ({ address, name, value })),
  );
  return html`<${Table}
    label="Settings of name servers"
    find="Filter settings"
    rows=${rows}
    rowKey=${({ address, name }) => `${address}/${name}`}
    columns=${[
      {
        key: "address",
        title: "Name server",
        cell: ({ address }) => html`<code>${address}</code>`,
      },
      {
        key: "name",
        title: "Setting",
        cell: ({ name }) => html`<code class="break">${name}</code>`,
      },
      {
        key: "value",
        title: "Value",
        cell: ({ value }) => html`<code class="break">${value}</code>`,
      },
    ]}
  />`;
}

function Values() {
  const [namespace, setNamespace] = useState("ORDER_TOPIC_CONFIG");
  const ask = useAsk(namespace && "/v1/name-servers/values", {}, { namespace });
  const at = "/v1/name-servers/values/{namespace}/{key}";
  const put = ({ key, value = "" }, preview) =>
    call("PUT", fill(at, { namespace, key }), { query: { preview }, body: { value } });
  return html`<${Panel} title="Values" ask=${ask}>
    ${(answer) =>
      html`<${Table}
        label="Values"
        rows=${answer.items}
        rowKey=${({ key }) => key}
        empty="No value in this namespace."
        tools=${html`<${Field} field=${NAMESPACE} value=${namespace} change=${setNamespace} />
          <${Action}
            label="Add a value"
            verb="Write"
            title=${`A value in ${namespace}`}
            previews
            fields=${[
              { name: "key", label: "Key", required: true },
              { name: "value", label: "Value", whole: true },
            ]}
            send=${put}
            done=${ask.refresh}
          />`}
        columns=${[
          { key: "key", title: "Key" },
          { key: "value", title: "Value", wide: true },
          {
            key: "delete",
            title: "",
            fixed: true,
            cell: ({ key }) =>
              html`<${Action}
                label="Delete"
                spoken=${`Delete ${key}`}
                tone="danger"
                title=${`Delete ${key} from ${namespace}`}
                previews
                send=${(_, preview) =>
                  call("DELETE", fill(at, { namespace, key }), { query: { preview } })}
                done=${ask.refresh}
              />`,
          },
        ]}
      />`}
  <//>`;
}
