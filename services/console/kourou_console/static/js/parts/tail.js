// The live tail of a topic: messages as they come, by tag or SQL, until it is stopped.

import { events, fill } from "../core/api.js";
import { html, useEffect, useRef, useState } from "../core/dom.js";
import { Field } from "./fields.js";
import { MessagesTable } from "./messages_table.js";
import { Notice, Refusal } from "./notice.js";
import { Plain } from "./panel.js";
import { Badge } from "./text.js";

const KEPT = 200;

const FIELDS = [
  { name: "tag", label: "Tags", hint: "Separated by blanks; empty: all." },
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

export function Tail({ topic }) {
  const [values, setValues] = useState({ tag: "", sql: "", from: "now" });
  const [state, setState] = useState({
    running: false,
    messages: [],
    gaps: [],
    seen: 0,
    problem: null,
  });
  const stop = useRef(null);
  useEffect(() => () => stop.current?.abort(), []);
  const start = async (event) => {
    event.preventDefault();
    const mine = new AbortController();
    stop.current = mine;
    setState({ running: true, messages: [], gaps: [], seen: 0, problem: null });
    const query = { ...values, tag: values.tag.split(/\s+/).filter(Boolean) };
    try {
      await events(fill("/v1/topics/{topic}/tail", { topic }), query, took(setState), mine.signal);
      setState((was) => ({ ...was, running: false }));
    } catch (problem) {
      const refused = problem.name === "AbortError" ? null : problem;
      setState((was) => ({ ...was, running: false, problem: refused }));
    }
  };
  const { running, messages, gaps, seen, problem } = state;
  return html`<${Plain}
    title="Live tail"
    tools=${html`<${Badge} tone=${running ? "good" : ""}>${running ? "runs" : "stopped"}<//>
      <span class="quiet small num" role="status">${seen} seen</span>`}
  >
    <form class="ask" onSubmit=${start}>
      ${FIELDS.map(
        (field) =>
          html`<${Field}
            field=${field}
            value=${values[field.name]}
            change=${(value) => setValues({ ...values, [field.name]: value })}
          />`,
      )}
      <div class="row">
        <button class="primary" disabled=${running}>Start</button>
        <button type="button" disabled=${!running} onClick=${() => stop.current.abort()}>Stop</button>
      </div>
    </form>
    <${Refusal} problem=${problem} />
    ${gaps.map(
      (gap) =>
        html`<${Notice} tone="warn">
          Not shown: ${gap.queue}, offsets ${gap.from_offset} to ${gap.to_offset}. ${gap.why}
        <//>`,
    )}
    ${seen > KEPT && html`<${Notice} tone="warn">The newest ${KEPT} of ${seen} are shown.<//>`}
    <${MessagesTable}
      label="Messages as they come"
      rows=${messages}
      without=${["topic"]}
      empty=${running ? "Nothing has come yet." : "Not running."}
    />
  <//>`;
}

function took(setState) {
  return ({ event, data }) => {
    const value = JSON.parse(data);
    setState((was) => {
      if (event === "message") {
        return { ...was, seen: was.seen + 1, messages: [value, ...was.messages].slice(0, KEPT) };
      }
      if (event === "gap") return { ...was, gaps: [...was.gaps, value] };
      return event === "error" ? { ...was, problem: value } : was;
    });
  };
}
