// Changes: a button, its form, what would happen (asked of the API), and what has happened.

import {
  createContext,
  html,
  useCallback,
  useContext,
  useEffect,
  useRef,
  useState,
} from "../core/dom.js";
import { Dialog } from "./dialog.js";
import { collected, Fields, initial } from "./fields.js";
import { Gaps, Refusal, Says, toast } from "./notice.js";

const Opening = createContext(null);

/**
 * Has the dialog of the change that is begun inside it. It stands apart from its button and keeps
 * what it was opened with: a list that is asked again meanwhile moves its rows, or has lost one.
 */
export function Actions({ children }) {
  const [opened, setOpened] = useState(null);
  const open = useCallback((dialog) => setOpened((was) => was || dialog), []);
  return html`<${Opening.Provider} value=${open}>
    ${children}
    ${opened && html`<${ActionDialog} ...${opened} close=${() => setOpened(null)} />`}
  <//>`;
}

/**
 * A button that opens the dialog of a change.
 *
 * `title` names what is changed. `fields` as parts/fields has them, or an async function that finds
 * out which. `send(values, preview)` calls the API; with `previews` it is called once with preview
 * true before the change may be made, and `shown(answer)` draws more than the answer's sentences.
 * `warning` says what will happen where the API cannot be asked. `name` must be typed in before a
 * change that cannot be undone. `done(answer)` is called after it.
 */
export function Action({ label, compact = true, disabled, fields, ...dialog }) {
  const open = useContext(Opening);
  const { tone = "", verb = label } = dialog;
  const begin = async () => {
    const asked = typeof fields === "function" ? await fields() : fields;
    open({ ...dialog, verb, fields: asked });
  };
  return html`
    <button
      type="button"
      class=${`${compact ? "compact" : ""} ${tone}`}
      disabled=${disabled}
      aria-label=${dialog.spoken}
      onClick=${begin}
    >
      ${label}
    </button>
  `;
}

function ActionDialog({
  title,
  verb,
  fields = [],
  send,
  previews = false,
  shown,
  result,
  warning,
  name,
  tone = "",
  done,
  close,
  large,
}) {
  const [values, setValues] = useState(() => initial(fields));
  const [state, setState] = useState({ busy: false, preview: null, answer: null, problem: null });
  const [typed, setTyped] = useState("");
  const edits = useRef(0);
  const run = async (preview) => {
    const edit = edits.current;
    // What would have happened with other values must not be taken for what will.
    const late = () => preview && edits.current !== edit;
    setState((was) => ({ ...was, busy: true, problem: null }));
    try {
      const answer = await send(collected(fields, values), preview);
      if (late()) {
        setState((was) => ({ ...was, busy: false }));
        return;
      }
      setState({
        busy: false,
        problem: null,
        preview: preview ? answer : null,
        answer: preview ? null : answer,
      });
      if (!preview) finish(answer);
    } catch (problem) {
      setState((was) => ({ ...was, busy: false, problem: late() ? null : problem }));
    }
  };
  const finish = (answer) => {
    done?.(answer);
    if (result || answer?.missing?.length || answer?.says?.length > 1) return;
    toast(answer?.says?.[0] || `${title}: done.`);
    close();
  };
  useEffect(() => {
    if (previews && fields.length === 0) run(true);
  }, []);
  const change = (field, value) => {
    edits.current += 1;
    setValues((was) => ({ ...was, [field]: value }));
    setState((was) => ({ ...was, preview: null, problem: null }));
  };
  const { busy, preview, answer, problem } = state;
  const ready = !previews || preview;
  const submit = (event) => {
    event.preventDefault();
    run(!ready);
  };
  if (answer) {
    return html`<${Dialog} title=${title} close=${close} large=${large}>
      <div class="content">
        <${Says} sentences=${answer.says} tone="good" />
        <${Gaps} missing=${answer.missing} />
        ${result?.(answer)}
      </div>
      <footer><button type="button" class="primary" onClick=${close}>Close</button></footer>
    <//>`;
  }
  return html`<${Dialog} title=${title} close=${close} large=${large}>
    <form onSubmit=${submit}>
      <div class="content">
        ${fields.length > 0 && html`<${Fields} fields=${fields} values=${values} change=${change} />`}
        ${warning && html`<${Says} sentences=${[warning]} tone="warn" />`}
        ${
          preview &&
          html`<h3 ref=${intoView}>Preview</h3>
          <${Says} sentences=${preview.says} tone=${tone === "danger" ? "bad" : "warn"} />
          <${Gaps} missing=${preview.missing} />
          ${shown?.(preview)}`
        }
        ${busy && !preview && html`<p class="quiet" role="status">Loading …</p>`}
        <${Refusal} problem=${problem} />
        ${name && ready && html`<${TypeName} name=${name} typed=${typed} setTyped=${setTyped} />`}
      </div>
      <footer>
        <button type="button" onClick=${close}>Cancel</button>
        <button
          class=${`primary ${ready ? tone : ""}`}
          disabled=${busy || (ready && Boolean(name) && typed !== name)}
        >
          ${ready ? verb : "Preview"}
        </button>
      </footer>
    </form>
  <//>`;
}

/** On a telephone what will happen stands below the fields. */
const intoView = (heading) => heading?.scrollIntoView({ block: "start" });

function TypeName({ name, typed, setTyped }) {
  return html`<div class="field">
    <label for="typed-name">Type <code>${name}</code> to confirm</label>
    <input
      id="typed-name"
      value=${typed}
      autocomplete="off"
      spellcheck=${false}
      onInput=${(event) => setTyped(event.target.value)}
    />
  </div>`;
}

/** A field for the reason that the control history keeps. */
export const REASON = {
  name: "reason",
  label: "Reason",
  hint: "Kept in the control history.",
  whole: true,
};
