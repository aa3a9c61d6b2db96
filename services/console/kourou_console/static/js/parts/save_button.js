// A button that saves a response of the API as a file.

import { html, useState } from "../core/dom.js";
import { save } from "../core/save.js";
import { Refusal } from "./notice.js";

export function SaveButton({ label, path, query, name, compact }) {
  const [problem, setProblem] = useState(null);
  const clicked = () => save(path, query, name).then(() => setProblem(null), setProblem);
  return html`<button type="button" class=${compact ? "compact" : ""} onClick=${clicked}>${label}</button>
    <${Refusal} problem=${problem} />`;
}
