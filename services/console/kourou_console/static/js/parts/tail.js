// The live tail of a topic: messages as they arrive, by tag or SQL, until it is stopped.

import { events, fill } from "../core/api.js";
import { html, useEffect, useRef, useState } from "../core/dom.js";
import { AskForm } from "./fields.js";
import { MessagesTable } from "./messages_table.js";
import { Notice, Refusal } from "./notice.js";
import { Plain } from "./panel.js";
import { Badge } from "./text.js";

const KEPT = 200;
const GAPS_KEPT = 20;

const FIELDS = [
  { name: "tag", label: "Tags", hint: "Separated by spaces; empty: all." },
  { name: "sql", label: "SQL", hint: "Instead of tags: price > 10" },
  {
    name: "from",
    label: "From",
    kind: "select",
    options: [
      ["now", "now"],
      ["begin", "the oldest message"],
    ],
  },
];

const NOTHING = { running: false, messages: [], gaps: [], seen: 0, gapsCut: false, problem: null };

export function Tail({ topic }) {
  const [values, setValues] = useState({ tag: "", sql: "", from: "now" });
  const [state, setState] = useState(NOTHING);
  const stop = useRef(null);
  useEffect(() => () => stop.current?.abort(), []);
  const start = async (event) => {
    event.preventDefault();
    const mine = new AbortController();
    stop.current = mine;
    setState({ ...NOTHING, running: true });
    const query = { ...values, tag: values.tag.split(/\s+/).filter(Boolean) };
    const take = ({ event, data }) => {
      const value = JSON.parse(data);
      setState((was) => after(was, event, value));
    };
    try {
      await events(fill("/v1/topics/{topic}/tail", { topic }), query, take, mine.signal);
      setState((was) => ({ ...was, running: false }));
    } catch (problem) {
      const refused = problem.name === "AbortError" ? null : problem;
      setState((was) => ({ ...was, running: false, problem: refused }));
    }
  };
  const { running, messages, gaps, gapsCut, seen, problem } = state;
  return html`<${Plain}
    title="Live tail"
    tools=${html`<${Badge} tone=${running ? "good" : ""}>${running ? "runs" : "stopped"}<//>
      <span class="quiet small num" role="status">${seen} seen</span>`}
  >
    <${AskForm} fields=${FIELDS} values=${values} setValues=${setValues} submit=${start}>
      <div class="row">
        <button class="primary" disabled=${running}>Start</button>
        <button type="button" disabled=${!running} onClick=${() => stop.current.abort()}>Stop</button>
      </div>
    <//>
    <${Refusal} problem=${problem} />
    ${gapsCut && html`<${Notice} tone="warn">Older messages are not shown.<//>`}
    ${gaps.map((gap) => html`<${Notice} tone="warn">${gapText(gap)}<//>`)}
    ${seen > KEPT && html`<${Notice} tone="warn">The newest ${KEPT} of ${seen} shown.<//>`}
    <${MessagesTable}
      label="Live messages"
      rows=${messages}
      without=${["topic"]}
      empty=${running ? "No messages yet." : "Not running."}
    />
  <//>`;
}

/** The shown messages after an event. Pure. */
export function after(was, event, value) {
  if (event === "message") {
    const { stored_topic: topic, broker, queue } = value;
    return {
      ...was,
      seen: was.seen + 1,
      messages: [value, ...was.messages].slice(0, KEPT),
      gaps: withoutWaiting(was.gaps, `${topic}/${broker}/${queue}`),
    };
  }
  if (event === "gap") {
    const gaps = [...withoutWaiting(was.gaps, value.queue), value];
    const gapsCut = was.gapsCut || gaps.length > GAPS_KEPT;
    return { ...was, gaps: gaps.slice(-GAPS_KEPT), gapsCut };
  }
  return event === "error" ? { ...was, problem: value } : was;
}

// An unreadable queue: any further event of it means that it is readable again.
const withoutWaiting = (gaps, queue) =>
  gaps.filter((gap) => gap.queue !== queue || gap.to_offset !== null);

/** A gap as a sentence. Pure. */
export function gapText({ queue, from_offset: from, to_offset: to, why }) {
  if (to === null) return `Cannot read ${queue} from offset ${from}; retrying. ${why}`;
  // A recreated queue starts at a lower offset.
  return to > from
    ? `Not shown: ${queue}, offsets ${from} to ${to - 1}. ${why}`
    : `Not shown: ${queue}, offset ${from}. ${why}`;
}
