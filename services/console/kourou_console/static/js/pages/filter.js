// One filter of one group: its versions at each broker, and the source of each.

import { html, useState } from "../core/dom.js";
import { useAsk } from "../core/hooks.js";
import { FilterActions, FilterState, PutFilter } from "../parts/filter_actions.js";
import { Notice } from "../parts/notice.js";
import { Page } from "../parts/page.js";
import { Panel } from "../parts/panel.js";
import { Table } from "../parts/table.js";
import { Badge, BrokerLink, Bytes, Time } from "../parts/text.js";

export default function Filter({ group, name }) {
  const ask = useAsk("/v1/filters/{group}/{name}", { group, name });
  const [shown, setShown] = useState(null);
  const rows = (ask.answer?.items || []).flatMap((filter) =>
    filter.versions.map((version) => ({ ...version, filter })),
  );
  const states = [...new Set(ask.answer?.items.map(({ state }) => state))];
  const { version, broker } = shown || newestOf(ask.answer?.items || []);
  return html`<${Page}
    title=${name}
    up=${[
      [["filters"], "Filters"],
      [["groups", group], group],
    ]}
    badges=${states.map((state) => html`<${FilterState} of=${{ state }} />`)}
    actions=${html`<${FilterActions} group=${group} name=${name} done=${ask.refresh} />`}
  >
    <${Panel} title="Versions" ask=${ask}>
      ${(answer) => html`
        ${answer.items.flatMap((filter) =>
          filter.quarantined.map(
            ({ version, why }) =>
              html`<${Notice} tone="bad">Version ${version} is quarantined at ${filter.broker}: ${why}<//>`,
          ),
        )}
        <${Table}
          label="Versions"
          rows=${rows}
          rowKey=${({ version, filter }) => `${filter.broker}/${version}`}
          sort=${{ key: "version", down: true }}
          columns=${[
            {
              key: "version",
              title: "Version",
              cell: ({ version, filter }) =>
                html`${version} ${filter.active === version && html`<${Badge} tone="good">active<//>`}`,
            },
            {
              key: "broker",
              title: "Broker",
              value: ({ filter }) => filter.broker,
              cell: ({ filter }) => html`<${BrokerLink} broker=${filter.broker} />`,
            },
            {
              key: "uploaded_ms",
              title: "Uploaded",
              cell: (row) => html`<${Time} ms=${row.uploaded_ms} />`,
            },
            {
              key: "enabled_ms",
              title: "Enabled",
              cell: (row) => html`<${Time} ms=${row.enabled_ms} why="never" />`,
            },
            { key: "author", title: "By" },
            { key: "note", title: "Note", wide: true },
            {
              key: "size_bytes",
              title: "Size",
              num: true,
              cell: (row) => html`<${Bytes} of=${row.size_bytes} />`,
            },
            {
              key: "sha256",
              title: "SHA-256",
              cell: ({ sha256 }) => html`<code title=${sha256}>${sha256.slice(0, 12)}</code>`,
            },
            {
              key: "source",
              title: "",
              fixed: true,
              cell: ({ version, filter }) =>
                html`<button
                  type="button"
                  class="compact"
                  aria-label=${`Source of version ${version} at ${filter.broker}`}
                  onClick=${() => setShown({ version, broker: filter.broker })}
                >
                  Source
                </button>`,
            },
          ]}
        />
      `}
    <//>
    <${Source}
      key=${JSON.stringify(shown)}
      group=${group}
      name=${name}
      version=${version}
      broker=${broker}
      done=${ask.refresh}
    />
  <//>`;
}

/** The newest version, and a broker that has it: a broker may have missed an upload. Pure. */
export function newestOf(filters) {
  const all = filters.flatMap(({ broker, versions }) =>
    versions.map(({ version }) => ({ version, broker })),
  );
  return all.reduce((best, one) => (one.version > best.version ? one : best), { version: 0 });
}

function Source({ group, name, version, broker, done }) {
  const ask = useAsk(
    version && broker ? "/v1/filters/{group}/{name}/source" : null,
    { group, name },
    { version, broker },
    { live: false },
  );
  if (!version || !broker) return null;
  return html`<${Panel}
    title=${`Source of version ${version}`}
    ask=${ask}
    tools=${
      ask.answer &&
      html`<${PutFilter} key=${version} group=${group} name=${name} source=${ask.answer.source} label="New version" done=${done} />`
    }
  >
    ${({ source }) => html`<pre tabindex="0" aria-label="Source">${source}</pre>`}
  <//>`;
}
