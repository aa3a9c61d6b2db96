// Browses one queue of a topic by offset.

import { html, useState } from "../core/dom.js";
import { useAsk } from "../core/hooks.js";
import { Field } from "./fields.js";
import { MessagesTable } from "./messages_table.js";
import { Panel } from "./panel.js";

const COUNT = 20;

export function Browse({ topic }) {
  // Requested once: a queue that gets its first message must not replace the selected one.
  const status = useAsk("/v1/topics/{topic}/status", { topic }, {}, { live: false });
  const queues = status.answer?.items || [];
  const names = queues.map(({ broker, queue }) => `${broker}/${queue}`);
  const [wanted, setWanted] = useState("");
  // Prefer a queue with messages to the first one.
  const first = queues.find(({ messages }) => messages > 0) || queues[0];
  const name = wanted || (first ? `${first.broker}/${first.queue}` : "");
  if (!name)
    return html`<${Panel} title="Messages" ask=${status}>${() => html`<p class="empty">No queue.</p>`}<//>`;
  return html`<${Queue} key=${name} topic=${topic} name=${name} names=${names} choose=${setWanted} />`;
}

function Queue({ topic, name, names, choose }) {
  const at = name.lastIndexOf("/");
  const [offset, setOffset] = useState(-COUNT);
  const [typed, setTyped] = useState("");
  const ask = useAsk(
    "/v1/topics/{topic}/queues/{broker}/{queue}/messages",
    { topic, broker: name.slice(0, at), queue: name.slice(at + 1) },
    { offset, count: COUNT },
    { live: offset < 0 },
  );
  const answer = ask.answer;
  const begin = answer?.items[0]?.offset ?? answer?.next_offset;
  const to = (event) => {
    event.preventDefault();
    if (typed !== "") setOffset(Number(typed));
  };
  return html`<${Panel} title="Messages" ask=${ask}>
    ${() => html`
      <form class="ask" onSubmit=${to}>
        <${Field}
          field=${{ name: "queue", label: "Queue", kind: "select", options: names }}
          value=${name}
          change=${choose}
        />
        <${Field}
          field=${{
            name: "offset",
            label: "From offset",
            kind: "number",
            min: answer.min_offset,
            hint: `${answer.min_offset} to ${answer.max_offset}`,
          }}
          value=${typed}
          change=${setTyped}
        />
        <div class="row">
          <button>Go</button>
          <button type="button" onClick=${() => setOffset(answer.min_offset)}>Oldest</button>
          <button
            type="button"
            disabled=${begin <= answer.min_offset}
            onClick=${() => setOffset(Math.max(answer.min_offset, begin - COUNT))}
          >
            Earlier
          </button>
          <button
            type="button"
            disabled=${answer.next_offset >= answer.max_offset}
            onClick=${() => setOffset(answer.next_offset)}
          >
            Later
          </button>
          <button type="button" onClick=${() => setOffset(-COUNT)}>Newest</button>
        </div>
      </form>
      <${MessagesTable}
        label="Messages"
        rows=${answer.items}
        without=${["topic", "place"]}
        empty="No messages here."
      />
    `}
  <//>`;
}
