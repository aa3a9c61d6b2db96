// Dialogs: the browser's <dialog>, which traps the focus and closes on Escape.

import { html, useEffect, useRef } from "../core/dom.js";

export function Dialog({ title, close, large, children }) {
  const box = useRef(null);
  useEffect(() => {
    const dialog = box.current;
    const before = document.activeElement;
    dialog.showModal();
    return () => {
      dialog.close();
      before?.focus?.();
    };
  }, []);
  const cancelled = (event) => {
    event.preventDefault();
    close();
  };
  return html`<dialog ref=${box} class=${large ? "large" : ""} aria-label=${title} onCancel=${cancelled}>
    <header>
      <h2>${title}</h2>
      <button type="button" class="plain" onClick=${close} aria-label="Close">
        <span aria-hidden="true">✕</span>
      </button>
    </header>
    ${children}
  </dialog>`;
}
