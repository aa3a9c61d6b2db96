// Dead letters of a group: by cause, one by one; redelivery of a selection.

import { html, useEffect, useState } from "../core/dom.js";
import { count, known } from "../core/format.js";
import { useAsk } from "../core/hooks.js";
import { Preview } from "../parts/messages_table.js";
import { Notice } from "../parts/notice.js";
import { Page } from "../parts/page.js";
import { Panel } from "../parts/panel.js";
import { Discard, Jobs, RedriveAction, causeText } from "../parts/redrive.js";
import { SaveButton } from "../parts/save_button.js";
import { Table } from "../parts/table.js";
import { Link, MessageLink, Time, TopicLink } from "../parts/text.js";

const COUNT = 200;

export default function DeadLetters({ group }) {
  return group ? html`<${OfGroup} group=${group} />` : html`<${Which} />`;
}

function Which() {
  const ask = useAsk("/v1/dead-letters/groups");
  return html`<${Page} title="Dead letters">
    <${Panel} title="Groups with dead letters" ask=${ask} number=${ask.answer?.total}>
      ${(answer) =>
        html`<${Table}
          label="Groups with dead letters"
          rows=${answer.items}
          empty="No group has dead letters."
          sort=${{ key: "waiting", down: true }}
          columns=${[
            {
              key: "group",
              title: "Group",
              cell: ({ group }) => html`<${Link} to=${["dead-letters", group]}>${group}<//>`,
            },
            { key: "waiting", title: "Pending", num: true },
          ]}
        />`}
    <//>
    <${Jobs} />
  <//>`;
}

function OfGroup({ group }) {
  const [pages, setPages] = useState([]);
  const ask = useAsk("/v1/dead-letters", {}, { group, count: COUNT, cursor: pages.at(-1) });
  const [chosen, choose] = useState(new Set());
  const [jobs, setJobs] = useState(0);
  useEffect(() => choose(new Set()), [pages]);
  const started = ({ dry_run: dry }) => {
    // After a dry run the selection can still be sent; after anything else it is cleared.
    if (!dry) choose(new Set());
    setJobs((number) => number + 1);
    ask.refresh();
  };
  return html`<${Page}
    title=${`Dead letters of ${group}`}
    up=${[[["dead-letters"], "Dead letters"]]}
    actions=${html`<${SaveButton}
        label="Export as JSON lines"
        path="/v1/dead-letters/export"
        query=${{ group }}
        name=${`dead-letters-${group}.jsonl`}
      />
      <${RedriveAction} group=${group} label="Redeliver by filter" done=${started} />`}
  >
    <${Panel} title="Causes" ask=${ask}>
      ${(answer) => html`
        <${Causes} causes=${answer.causes} group=${group} started=${started} />
        ${answer.causes_truncated && html`<${Notice} tone="warn">There are more dead letters than were counted.<//>`}
      `}
    <//>
    <${Panel} title="Messages" ask=${ask} follows number=${ask.answer?.total}>
      ${(answer) => html`<${Letters}
        answer=${answer}
        group=${group}
        chosen=${chosen}
        choose=${choose}
        started=${started}
      />
      ${
        (answer.cursor || pages.length > 0) &&
        html`<div class="table-foot">
        Page ${pages.length + 1}
        <button type="button" class="compact" disabled=${!pages.length} onClick=${() => setPages(pages.slice(0, -1))}>
          Earlier
        </button>
        <button
          type="button"
          class="compact"
          disabled=${!answer.cursor}
          onClick=${() => setPages([...pages, answer.cursor])}
        >
          Later
        </button>
      </div>`
      }`}
    <//>
    <${Jobs} key=${jobs} group=${group} />
  <//>`;
}

function Causes({ causes, group, started }) {
  return html`<${Table}
    label="Causes"
    rows=${causes}
    rowKey=${({ cause, origin_topic: topic }) => JSON.stringify([cause, topic])}
    empty="No dead letters."
    columns=${[
      {
        key: "cause",
        title: "Cause",
        wide: true,
        cell: (row) => html`<${Cause} of=${row} />`,
      },
      {
        key: "origin_topic",
        title: "Original topic",
        cell: ({ origin_topic: topic }) => topic && html`<${TopicLink} topic=${topic} />`,
      },
      { key: "count", title: "Messages", num: true },
      { key: "first_ms", title: "First", cell: (row) => html`<${Time} ms=${row.first_ms} />` },
      { key: "last_ms", title: "Last", cell: (row) => html`<${Time} ms=${row.last_ms} />` },
      {
        key: "redrive",
        title: "",
        fixed: true,
        cell: (row) =>
          html`<${RedriveAction}
            group=${group}
            label="Redeliver"
            compact
            filter=${{ cause: row.cause, origin_topic: row.origin_topic }}
            done=${started}
          />`,
      },
    ]}
  />`;
}

// The common part of many reasons, and one of them as an example.
function Cause({ of: { cause, reason } }) {
  return html`${cause ? causeText(cause) : html`<span class="quiet">no reason given</span>`}
    ${reason && reason !== cause && html`<div class="quiet small break">${reason}</div>`}`;
}

function Letters({ answer, group, chosen, choose, started }) {
  return html`<${Table}
    label="Dead letters"
    find="Filter the list"
    rows=${answer.items}
    empty="No dead letters."
    pick=${{ chosen, choose, key: ({ id }) => id }}
    tools=${html`<${RedriveAction}
        group=${group}
        label=${`Redeliver selected (${count(chosen.size)})`}
        compact
        disabled=${chosen.size === 0}
        ids=${[...chosen]}
        done=${started}
      />
      <${Discard}
        group=${group}
        letters=${answer.items.filter(({ id }) => chosen.has(id))}
        done=${started}
      />`}
    columns=${[
      {
        key: "id",
        title: "Message",
        cell: ({ id, message }) =>
          html`<${MessageLink} id=${id} query=${{ topic: message.topic }} />`,
      },
      {
        key: "cause",
        title: "Cause",
        wide: true,
        cell: (row) => html`<${Cause} of=${row} />`,
      },
      {
        key: "origin_topic",
        title: "From",
        cell: ({ origin_topic: topic }) => topic && html`<${TopicLink} topic=${topic} />`,
      },
      { key: "attempts", title: "Attempts", num: true },
      {
        key: "died_ms",
        title: "Since",
        cell: ({ died_ms: ms }) => html`<${Time} ms=${ms} />`,
      },
      {
        key: "keys",
        title: "Tag, keys",
        value: ({ message }) => [message.tag, ...message.keys].filter(known).join(" "),
      },
      {
        key: "body",
        title: "Body preview",
        wide: true,
        value: ({ message }) => message.body,
        cell: ({ message }) => html`<${Preview} message=${message} />`,
      },
    ]}
  />`;
}
