// Changes: a button, its form, a preview from the API, and the result.

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
 * Contains the dialog of a change that was opened inside it. The dialog is separate from its button
 * and keeps the row that it was opened with: a refresh of the list may move or remove the row.
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
 * `title` names the changed object. `fields` as in parts/fields, or an async function that returns
 * them. `send(values, preview)` calls the API; with `previews` it is first called with preview true,
 * and `shown(answer)` draws more than the response's sentences. `warning` describes the effect if
 * the API has no preview. `name` must be typed in before a change that cannot be undone.
 * `done(answer)` is called after the change.
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
    // The preview of other values must not be taken for that of the current ones.
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

/** On small screens the preview is below the fields. */
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

/** A field for the reason, which is stored in the control history. */
export const REASON = {
  name: "reason",
  label: "Reason",
  hint: "Kept in the control history.",
  whole: true,
};
