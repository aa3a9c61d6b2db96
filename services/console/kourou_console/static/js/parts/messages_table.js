// A list of messages, for browsing, search and live tail.

import { fromBase64 } from "../core/bytes.js";
import { html } from "../core/dom.js";
import { known } from "../core/format.js";
import { Table } from "./table.js";
import { Badge, Bytes, MessageLink, Time, TopicLink } from "./text.js";

const PREVIEW = 120;

/** The bytes of a message's body, as far as the API returned them. */
export function bodyOf({ body, body_base64: base64 }) {
  return known(body) ? new TextEncoder().encode(body) : fromBase64(base64 ?? "");
}

export function Preview({ message }) {
  const { body, body_base64: base64, body_truncated: cut, body_error: error } = message;
  if (known(error)) return html`<span class="quiet">${error}</span>`;
  if (!known(body)) {
    const beginning = [...fromBase64(base64 ?? "").subarray(0, 16)];
    const hex = beginning.map((byte) => byte.toString(16).padStart(2, "0")).join(" ");
    return html`<code class="quiet" title="Not text">${hex}${cut ? " …" : ""}</code>`;
  }
  const short = body.slice(0, PREVIEW);
  return html`<code class="break">${short}${cut || body.length > PREVIEW ? " …" : ""}</code>`;
}

const COLUMNS = [
  {
    key: "id",
    title: "Message",
    cell: ({ id, topic }) => html`<${MessageLink} id=${id} query=${{ topic }} />`,
  },
  { key: "topic", title: "Topic", cell: ({ topic }) => html`<${TopicLink} topic=${topic} />` },
  {
    key: "place",
    title: "Queue",
    value: ({ broker, queue }) => `${broker}/${queue}`,
    cell: ({ broker, queue }) => html`<span class="nowrap">${broker}/${queue}</span>`,
  },
  { key: "offset", title: "Offset", num: true },
  { key: "stored_ms", title: "Stored", cell: (row) => html`<${Time} ms=${row.stored_ms} />` },
  { key: "tag", title: "Tag", cell: ({ tag }) => tag && html`<${Badge}>${tag}<//>` },
  { key: "keys", title: "Keys", value: ({ keys }) => keys.join(" ") },
  {
    key: "body_bytes",
    title: "Body",
    num: true,
    cell: (row) => html`<${Bytes} of=${row.body_bytes} />`,
  },
  {
    key: "body",
    title: "Body preview",
    wide: true,
    cell: (row) => html`<${Preview} message=${row} />`,
  },
];

export function MessagesTable({ label, rows, empty, sort, without = [] }) {
  return html`<${Table}
    label=${label}
    find="Filter the list"
    rows=${rows}
    empty=${empty}
    sort=${sort}
    columns=${COLUMNS.filter(({ key }) => !without.includes(key))}
  />`;
}
