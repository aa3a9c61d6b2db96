// Python filters: list, statistics, upload of a new version.

import { html } from "../core/dom.js";
import { useAsk } from "../core/hooks.js";
import { BROKER, GROUP } from "../parts/columns.js";
import { FilterState, PutFilter } from "../parts/filter_actions.js";
import { Page } from "../parts/page.js";
import { Panel } from "../parts/panel.js";
import { Table } from "../parts/table.js";
import { Badge, Bytes, Flag, Link, Time } from "../parts/text.js";

export default function Filters() {
  const ask = useAsk("/v1/filters");
  const statistics = useAsk("/v1/filter-statistics");
  return html`<${Page} title="Filters" actions=${html`<${PutFilter} label="Upload" done=${ask.refresh} />`}>
    <${Panel} title="Filters" ask=${ask} number=${ask.answer?.total}>
      ${(answer) =>
        html`<${Table}
          label="Filters"
          find="Filter"
          rows=${answer.items}
          empty="No filter has been uploaded."
          columns=${[
            {
              key: "name",
              title: "Filter",
              cell: ({ group, name }) => html`<${Link} to=${["filters", group, name]}>${name}<//>`,
            },
            GROUP,
            BROKER,
            { key: "state", title: "State", cell: (row) => html`<${FilterState} of=${row} />` },
            { key: "active", title: "Active", num: true },
            { key: "newest", title: "Newest", num: true },
            {
              key: "policy",
              title: "Failure policy",
              cell: ({ policy }) => html`<${Badge}>${policy}<//>`,
            },
            {
              key: "versions",
              title: "Versions",
              num: true,
              value: ({ versions }) => versions.length,
            },
          ]}
        />`}
    <//>
    <${Panel} title="Filter servers" ask=${ask} follows>
      ${(answer) =>
        html`<${Table}
          label="Filter servers"
          rows=${answer.servers}
          empty="No filter server is online."
          columns=${[
            BROKER,
            {
              key: "addresses",
              title: "Addresses",
              value: ({ addresses }) => addresses.join(", ") || "none",
            },
          ]}
        />`}
    <//>
    <${Panel} title="Statistics" ask=${statistics}>
      ${(answer) =>
        html`<${Table}
          label="Statistics"
          rows=${answer.items}
          empty="No filter has run."
          columns=${[
            { key: "name", title: "Filter" },
            { key: "group", title: "Group" },
            { key: "server", title: "Server", cell: ({ server }) => html`<code>${server}</code>` },
            { key: "version", title: "Version", num: true },
            {
              key: "running",
              title: "Process",
              about: "Whether a sandboxed process for it is there now; the next pull starts one.",
              cell: ({ running }) => html`<${Flag} of=${Boolean(running)} />`,
            },
            { key: "seen", title: "Seen", num: true },
            { key: "passed", title: "Passed", num: true },
            { key: "errors", title: "Errors", num: true },
            { key: "skipped", title: "Skipped", num: true },
            { key: "micros_a_message", title: "µs/message", num: true },
            {
              key: "bytes_in",
              title: "Bytes in",
              num: true,
              cell: (row) => html`<${Bytes} of=${row.bytes_in} />`,
            },
            {
              key: "bytes_out",
              title: "Bytes out",
              num: true,
              cell: (row) => html`<${Bytes} of=${row.bytes_out} />`,
            },
            {
              key: "last_failure",
              title: "Last failure",
              wide: true,
              cell: ({ last_failure: text, failed_at_ms: ms }) =>
                text ? html`${text} <${Time} ms=${ms} />` : html`<span class="quiet">none</span>`,
            },
          ]}
        />`}
    <//>
  <//>`;
}
