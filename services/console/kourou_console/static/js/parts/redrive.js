// Redelivery of dead letters: selection, rate, dry run, and the outcome of each one.

import { call, fill } from "../core/api.js";
import { html, useEffect, useState } from "../core/dom.js";
import { count } from "../core/format.js";
import { useAsk } from "../core/hooks.js";
import { Action } from "./action.js";
import { Dialog } from "./dialog.js";
import { Notice, Refusal } from "./notice.js";
import { Panel } from "./panel.js";
import { Table } from "./table.js";
import { Badge, MessageLink, Time } from "./text.js";

const TONES = { running: "accent", done: "good", failed: "bad", stopped: "warn" };
const OUTCOMES = {
  sent: "good",
  failed: "bad",
  would_send: "accent",
  not_sent: "warn",
  not_found: "bad",
};
const LOOK_MS = 500;
/** The number of outcomes that the API returns in one page. */
const OUTCOMES_MAX = 1000;
const PATH = "/v1/dead-letters/redrives";

const FILTER = [
  { name: "cause", label: "Cause", hint: "As listed, … for each number and id." },
  { name: "origin_topic", label: "Original topic" },
  { name: "tag", label: "Tags", hint: "Separated by spaces." },
  { name: "key", label: "Key" },
  { name: "sql", label: "SQL", hint: "Over properties: price > 10" },
  { name: "from_ms", label: "Dead since", kind: "time" },
  { name: "until_ms", label: "Dead until", kind: "time" },
];

const HOW = [
  { name: "rate_per_s", label: "Messages per second", kind: "number", min: 1, value: 10 },
  {
    name: "dry_run",
    label: "Dry run",
    kind: "checkbox",
    value: true,
    hint: "Shows for each message whether it would be redelivered. Nothing is sent.",
    whole: true,
  },
  {
    name: "deal_with",
    label: "Mark as handled",
    kind: "checkbox",
    hint: "Handled messages are no longer listed.",
    whole: true,
  },
];

/** For the dead letters `ids`, or those of `filter`; without either the form has fields for a filter. */
export function RedriveAction({ group, label, ids, filter, done, ...rest }) {
  const asks = !ids && !filter;
  const send = ({ rate_per_s, dry_run, deal_with, ...chosen }) => {
    const how = { group, rate_per_s, dry_run, deal_with };
    return call("POST", PATH, {
      body: { ...how, ...(ids ? { ids } : { filter: filter ?? selection(chosen) }) },
    });
  };
  const which = ids
    ? "the selected dead letters"
    : filter
      ? `“${causeText(filter.cause)}”`
      : "dead letters";
  return html`<${Action}
    compact=${false}
    ...${rest}
    label=${label}
    spoken=${filter && `Redeliver cause ${causeText(filter.cause)}`}
    verb="Start"
    title=${`Redeliver ${which} of ${group}`}
    large
    warning=${`Each selected message is redelivered to ${group}, unless this is a dry run.`}
    fields=${asks ? [...FILTER, ...HOW] : HOW}
    send=${send}
    result=${(job) => html`<${Job} id=${job.id} />`}
    done=${done}
  />`;
}

/** The fields of the form as the API's filter; tags are separated by blanks. Pure. */
export function selection({ tag, cause, ...rest }) {
  return {
    ...rest,
    ...(cause && { cause: cause.replaceAll("…", "#") }),
    ...(tag && { tag: tag.split(/\s+/).filter(Boolean) }),
  };
}

/** A cause for display: `#` stands for each number and ID in which its reasons differ. */
export const causeText = (cause) => cause.replaceAll("#", "…");

/** Discards these dead letters: they are no longer listed. */
export function Discard({ group, letters, done }) {
  return html`<${Action}
    label=${`Discard selected (${count(letters.length)})`}
    verb="Discard"
    tone="danger"
    disabled=${letters.length === 0}
    title=${`Discard the selected dead letters of ${group}`}
    previews
    send=${(_, preview) =>
      call("POST", "/v1/dead-letters/discards", {
        query: { preview },
        body: { group, ids: letters.map(({ id }) => id) },
      })}
    done=${done}
  />`;
}

/** All jobs that the console still has. */
export function Jobs({ group }) {
  const ask = useAsk(PATH);
  const [shown, setShown] = useState(null);
  useWhile(
    ask.answer?.items.some(({ state }) => state === "running"),
    ask,
  );
  return html`<${Panel} title="Redeliveries" ask=${ask}>
    ${(answer) => html`
      <${Table}
        label="Redeliveries"
        rows=${answer.items.filter((job) => !group || job.group === group)}
        rowKey=${({ id }) => id}
        empty="None since the console started."
        columns=${[
          {
            key: "started_ms",
            title: "Started",
            cell: (row) => html`<${Time} ms=${row.started_ms} />`,
          },
          { key: "group", title: "Group" },
          {
            key: "state",
            title: "State",
            cell: ({ state, dry_run: dry }) =>
              html`<${Badge} tone=${TONES[state]}>${state}<//> ${dry && html`<${Badge}>dry run<//>`}`,
          },
          { key: "selected", title: "Selected", num: true },
          { key: "sent", title: "Sent", num: true },
          { key: "failed", title: "Failed", num: true },
          { key: "left", title: "Remaining", num: true },
          {
            key: "show",
            title: "",
            fixed: true,
            cell: ({ id }) =>
              html`<button type="button" class="compact" aria-label=${`Results of redelivery ${id}`} onClick=${() => setShown(id)}>                Results
              </button>`,
          },
        ]}
      />
      ${
        shown &&
        html`<${Dialog} title="Redelivery" large close=${() => setShown(null)}>
        <div class="content"><${Job} id=${shown} /></div>
        <footer><button type="button" class="primary" onClick=${() => setShown(null)}>Close</button></footer>
      <//>`
      }
    `}
  <//>`;
}

/** Refreshes quickly while a job is running. */
function useWhile(on, ask) {
  useEffect(() => {
    if (!on) return undefined;
    const timer = setTimeout(ask.refresh, LOOK_MS);
    return () => clearTimeout(timer);
  }, [ask.answer]);
}

function Job({ id }) {
  const [from, setFrom] = useState(0);
  const ask = useAsk(`${PATH}/{id}`, { id }, { from, count: OUTCOMES_MAX });
  useWhile(ask.answer?.state === "running", ask);
  const [refusal, setRefusal] = useState(null);
  const stop = async () => {
    try {
      await call("DELETE", fill(`${PATH}/{id}`, { id }));
      setRefusal(null);
      ask.refresh();
    } catch (problem) {
      setRefusal(problem);
    }
  };
  // Further outcomes are loaded below, so the list is not shown as truncated.
  const whole = { ...ask, answer: ask.answer && { ...ask.answer, truncated: false } };
  return html`<${Panel} title="Result" ask=${whole}>
    ${(job) => html`
      <${Refusal} problem=${refusal} />
      <div class="padded stack">
        <div class="row">
          <${Badge} tone=${TONES[job.state]}>${job.state}<//>
          ${job.dry_run && html`<${Badge}>dry run<//>`}
          <progress class="progress" max=${job.selected || 1} value=${job.selected - job.left} aria-label="Progress" />
          <span>
            ${count(job.selected)} selected, ${count(job.sent)} sent, ${count(job.failed)} failed,
            ${" "}${count(job.left)} remaining
          </span>
          ${job.state === "running" && html`<button type="button" class="compact danger" onClick=${stop}>Stop</button>`}
        </div>
      </div>
      ${job.error && html`<${Notice} tone="bad">${job.error}<//>`}
      <${Table}
        label="Results"
        rows=${job.outcomes}
        empty="None yet."
        columns=${[
          { key: "id", title: "Message", cell: (row) => html`<${MessageLink} id=${row.id} />` },
          {
            key: "state",
            title: "Result",
            cell: ({ state }) =>
              html`<${Badge} tone=${OUTCOMES[state]}>${state.replaceAll("_", " ")}<//>`,
          },
          { key: "error", title: "Reason", wide: true, cell: ({ error }) => error },
        ]}
      />
      <${Turn} job=${job} from=${from} setFrom=${setFrom} />
    `}
  <//>`;
}

/** Links to the previous and next outcomes, if there are more than one page. */
function Turn({ job, from, setFrom }) {
  const { outcomes, outcomes_total: total } = job;
  const next = from + outcomes.length;
  if (outcomes.length === total) return null;
  return html`<div class="table-foot">
    Results ${count(from + 1)} to ${count(next)} of ${count(total)}
    <button type="button" class="compact" disabled=${from === 0} onClick=${() => setFrom(from - OUTCOMES_MAX)}>
      Earlier
    </button>
    <button type="button" class="compact" disabled=${next >= total} onClick=${() => setFrom(next)}>
      Later
    </button>
  </div>`;
}
