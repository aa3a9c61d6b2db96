// The bar at the top of every page: message search, refresh interval, colours, the caller.

import { call } from "../core/api.js";
import { html, useState } from "../core/dom.js";
import { useAsk, useSession } from "../core/hooks.js";
import { go } from "../core/route.js";

const EVERY = [
  [0, "manual"],
  [2, "2 s"],
  [10, "10 s"],
  [60, "1 min"],
];

const THEMES = [
  ["auto", "auto"],
  ["light", "light"],
  ["dark", "dark"],
];

export function Bar({ menu, setMenu }) {
  const session = useSession();
  return html`<header class="bar">
    <button
      type="button"
      class="menu-button"
      aria-expanded=${menu}
      aria-controls="nav"
      onClick=${() => setMenu(!menu)}
    >
      Menu
    </button>
    <${Find} />
    <div class="right">
      <${Choice}
        label="Refresh"
        options=${EVERY}
        value=${session.every_s}
        choose=${(value) => session.setEvery(Number(value))}
      />
      <${Choice}
        label="Theme"
        wide
        options=${THEMES}
        value=${session.theme}
        choose=${(value) => session.setTheme(value)}
      />
      <${Who} key=${`${session.token}${session.csrf}`} />
    </div>
  </header>`;
}

function Find() {
  const [id, setId] = useState("");
  const find = (event) => {
    event.preventDefault();
    if (id.trim()) go(["messages", id.trim()]);
  };
  return html`<form class="find" role="search" onSubmit=${find}>
    <input
      type="search"
      aria-label="Find a message by ID"
      placeholder="Message ID"
      value=${id}
      onInput=${(event) => setId(event.target.value)}
    />
  </form>`;
}

function Choice({ label, options, value, choose, wide }) {
  return html`<label class=${wide ? "wide" : ""}>
    ${label}
    <select value=${value} onChange=${(event) => choose(event.target.value)}>
      ${options.map(
        ([name, text]) => html`<option value=${name} selected=${name === value}>${text}</option>`,
      )}
    </select>
  </label>`;
}

function Who() {
  const session = useSession();
  const { answer } = useAsk("/v1/me", {}, {}, { live: false });
  if (!answer?.token_required || session.locked) return null;
  const leave = async () => {
    if (!session.token) await call("DELETE", "/session").catch(() => null);
    session.logout();
  };
  return html`<span class="small quiet wide" title=${`May ${answer.rights.join(", ")}`}
      >${answer.name}</span
    >
    <button type="button" class="plain compact" onClick=${leave}>Log out</button>`;
}
