// Form fields from descriptions: {name, label, kind, hint, required, options, whole …}.

import { html } from "../core/dom.js";
import { fromFieldTime } from "../core/format.js";

/** The options of a flag that stays as it is by default. */
const FLAGS = [
  ["", "unchanged"],
  ["true", "yes"],
  ["false", "no"],
];

let numbers = 0;

/** All `fields`, with `values` by name; `change(name, value)` is called on each input. */
export function Fields({ fields, values, change }) {
  return html`<div class="form">
    ${fields
      .filter((field) => !field.when || field.when(values))
      .map(
        (field) =>
          html`<${Field}
            key=${field.name}
            field=${field}
            value=${values[field.name]}
            change=${(value) => change(field.name, value)}
          />`,
      )}
  </div>`;
}

/** A query form above its result: `fields`, whose input is stored in `values`, and buttons. */
export function AskForm({ fields, values, setValues, submit, children }) {
  return html`<form class="ask" onSubmit=${submit}>
    ${fields.map(
      (field) =>
        html`<${Field}
          key=${field.name}
          field=${field}
          value=${values[field.name]}
          change=${(value) => setValues((was) => ({ ...was, [field.name]: value }))}
        />`,
    )}
    ${children}
  </form>`;
}

export function Field({ field, value, change }) {
  const id = `field-${(field.id ??= ++numbers)}`;
  const hint = field.hint && `${id}-hint`;
  if (field.kind === "checkbox") {
    return html`<div class="field ${field.whole ? "whole" : ""}">
      <span class="check">
        <input
          type="checkbox"
          id=${id}
          aria-describedby=${hint}
          checked=${Boolean(value)}
          onChange=${(event) => change(event.target.checked)}
        />
        <label for=${id}>${field.label}</label>
      </span>
      ${hint && html`<span class="hint" id=${hint}>${field.hint}</span>`}
    </div>`;
  }
  return html`<div class="field ${field.whole || field.kind === "textarea" ? "whole" : ""}">
    <label for=${id}>${field.label}</label>
    <${Control} field=${field} id=${id} hint=${hint} value=${value} change=${change} />
    ${hint && html`<span class="hint" id=${hint}>${field.hint}</span>`}
  </div>`;
}

function Control({ field, id, hint, value, change }) {
  const common = {
    id,
    name: field.name,
    "aria-describedby": hint,
    required: field.required,
    value: value ?? "",
    onInput: (event) => change(event.target.value),
  };
  if (field.kind === "select" || field.kind === "flag") {
    return html`<select ...${common}>
      ${(field.options || FLAGS).map((option) => {
        const [name, label] = Array.isArray(option) ? option : [option, option];
        return html`<option value=${name} selected=${name === value}>${label}</option>`;
      })}
    </select>`;
  }
  if (field.kind === "textarea") {
    return html`<textarea ...${common} rows=${field.rows || 6} spellcheck=${false} />`;
  }
  if (field.kind === "time") {
    return html`<input ...${common} type="datetime-local" step="1" />`;
  }
  return html`<input
    ...${common}
    type=${field.kind || "text"}
    min=${field.min}
    max=${field.max}
    step=${field.step}
    list=${field.list}
    placeholder=${field.placeholder}
    autocomplete=${field.autocomplete || "off"}
    spellcheck=${false}
  />`;
}

/** The initial values of a form: each field's `value`. */
export function initial(fields) {
  return Object.fromEntries(fields.map((field) => [field.name, field.value ?? ""]));
}

/** Values as the API expects them: numbers, times in ms; empty fields are omitted. Pure. */
export function collected(fields, values) {
  const found = {};
  for (const field of fields) {
    if (field.when && !field.when(values)) continue;
    const value = values[field.name];
    if (field.kind === "checkbox") found[field.name] = Boolean(value);
    else if (value === "" || value === undefined || value === null) continue;
    else if (field.kind === "flag") found[field.name] = value === "true";
    else if (field.kind === "number") found[field.name] = Number(value);
    else if (field.kind === "time") found[field.name] = fromFieldTime(value);
    else found[field.name] = value;
  }
  return found;
}
