// Shown if the API requires a token, and none is set or it is not accepted any more.

import { call } from "../core/api.js";
import { html, useState } from "../core/dom.js";
import { session } from "../core/session.js";
import { Refusal } from "./notice.js";
import { Plain } from "./panel.js";

export function Login() {
  const [token, setToken] = useState("");
  const [problem, setProblem] = useState(null);
  const submit = async (event) => {
    event.preventDefault();
    try {
      await call("GET", "/v1/me", { headers: { Authorization: `Bearer ${token}` } });
      session.login(token);
    } catch (refused) {
      setProblem(refused);
    }
  };
  return html`<h1 tabindex="-1">Log in</h1>
    <${Plain} title="This API requires a token">
      <form class="ask" onSubmit=${submit}>
        <div class="field">
          <label for="token">Token</label>
          <input
            id="token"
            type="password"
            required
            autocomplete="current-password"
            value=${token}
            onInput=${(event) => setToken(event.target.value)}
          />
        </div>
        <button class="primary">Log in</button>
      </form>
      <p class="padded quiet">The token is kept until this tab is closed.</p>
      <${Refusal} problem=${problem} />
    <//>`;
}
