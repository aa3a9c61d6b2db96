// Actions of a filter: a new version, the active version, a trial, the failure policy.

import { call, fill } from "../core/api.js";
import { html } from "../core/dom.js";
import { go } from "../core/route.js";
import { Action, REASON } from "./action.js";
import { Table } from "./table.js";
import { Badge, Flag, Unknown } from "./text.js";

const TONES = { runs: "good", quarantined: "bad" };
const PATH = "/v1/filters/{group}/{name}";

export function FilterState({ of }) {
  return html`<${Badge} tone=${TONES[of.state] || ""}>${of.state}<//>`;
}

/** The versions after a change, broker by broker. */
function After({ answer }) {
  if (answer.items.length === 0) return null;
  return html`<${Table}
    label="Result"
    rows=${answer.items}
    columns=${[
      { key: "broker", title: "Broker" },
      { key: "version", title: "Version", num: true },
      { key: "active", title: "Active", num: true },
      { key: "created", title: "New", cell: ({ created }) => html`<${Flag} of=${created} />` },
      { key: "quarantined", title: "Quarantined", cell: ({ quarantined }) => quarantined || "no" },
    ]}
  />`;
}

const change = (group, name, what, previews) => ({
  previews: true,
  compact: previews.compact ?? false,
  send: (body, preview) =>
    call("POST", fill(`${PATH}/${what}`, { group, name }), { query: { preview }, body }),
  shown: (answer) => html`<${After} answer=${answer} />`,
  done: previews.done,
});

export function PutFilter({ group, name, source = "", label, done }) {
  const fields = [
    { name: "group", label: "Group", required: true, when: () => !group },
    { name: "name", label: "Name", required: true, when: () => !name },
    {
      name: "source",
      label: "Python source",
      kind: "textarea",
      rows: 14,
      required: true,
      value: source,
    },
    { name: "note", label: "Note", whole: true },
    { name: "enable", label: "Enable immediately", kind: "checkbox", value: true, whole: true },
  ];
  return html`<${Action}
    label=${label}
    compact=${false}
    title=${name ? `A new version of ${name} of ${group}` : "Upload a filter"}
    verb="Upload"
    previews
    large
    fields=${fields}
    send=${({ group: typedGroup, name: typedName, ...body }, preview) =>
      call("PUT", fill(PATH, { group: group || typedGroup, name: name || typedName }), {
        query: { preview },
        body,
      })}
    shown=${(answer) => html`<${After} answer=${answer} />`}
    done=${done}
  />`;
}

export function FilterActions({ group, name, done }) {
  const of = `${name} of ${group}`;
  const options = { done };
  return html`
    <${Action}
      label="Enable"
      title=${`Enable ${of}`}
      fields=${[{ name: "version", label: "Version", kind: "number", min: 1, hint: "Empty: the newest." }, REASON]}
      ...${change(group, name, "enable", options)}
    />
    <${Action} label="Disable" tone="danger" title=${`Disable ${of}`} fields=${[REASON]} ...${change(group, name, "disable", options)} />
    <${Action} label="Roll back" tone="danger" title=${`Enable the previous version of ${of}`} fields=${[REASON]} ...${change(group, name, "rollback", options)} />
    <${Action}
      label="Policy"
      title=${`What happens when ${of} fails`}
      fields=${[
        {
          name: "policy",
          label: "Then",
          kind: "select",
          value: "hold",
          options: [
            ["hold", "hold the messages"],
            ["skip", "skip failed messages"],
            ["pass", "deliver everything unfiltered"],
          ],
        },
        REASON,
      ]}
      ...${change(group, name, "policy", options)}
    />
    <${Trial} group=${group} name=${name} />
    <${Action}
      label="Delete"
      compact=${false}
      tone="danger"
      title=${`Delete the filter ${of}`}
      name=${name}
      previews
      send=${(_, preview) => call("DELETE", fill(PATH, { group, name }), { query: { preview } })}
      shown=${(answer) => html`<${After} answer=${answer} />`}
      done=${() => go(["filters"])}
    />
  `;
}

function Trial({ group, name }) {
  return html`<${Action}
    label="Try"
    compact=${false}
    title=${`Dry run ${name} on stored messages`}
    verb="Try"
    large
    warning="No message is delivered and no offset changes."
    fields=${[
      { name: "topic", label: "Topic", required: true },
      { name: "version", label: "Version", kind: "number", min: 1, hint: "Empty: the active one." },
      { name: "count", label: "Messages", kind: "number", min: 1, max: 1000, value: 100 },
      { name: "source", label: "Source", kind: "textarea", hint: "Instead of a version." },
    ]}
    send=${(body) => call("POST", fill(`${PATH}/trials`, { group, name }), { body })}
    result=${(answer) => html`
      <${Table}
        label="By server"
        titled
        rows=${answer.trials}
        columns=${[
          { key: "server", title: "Server" },
          { key: "seen", title: "Seen", num: true },
          { key: "passed", title: "Passed", num: true },
          { key: "failed", title: "Failed", num: true },
          {
            key: "failure",
            title: "Failure",
            wide: true,
            cell: ({ failure, reason }) => failure || reason || "none",
          },
        ]}
      />
      <${Table}
        label="By message"
        titled
        rows=${answer.items}
        columns=${[
          {
            key: "message_id",
            title: "Message",
            cell: (row) => html`<code class="break">${row.message_id}</code>`,
          },
          { key: "tag", title: "Tag" },
          {
            key: "passed",
            title: "Verdict",
            cell: ({ passed }) =>
              passed === null
                ? html`<${Unknown} why="filter failed" />`
                : html`<${Badge} tone=${passed ? "good" : ""}>${passed ? "passes" : "filtered out"}<//>`,
          },
          { key: "reason", title: "Reason", wide: true },
          { key: "micros", title: "µs", num: true },
        ]}
      />
    `}
  />`;
}
