// Shown if the API requires credentials, and there are none or they are not accepted any more.

import { call } from "../core/api.js";
import { html, useEffect, useState } from "../core/dom.js";
import { session } from "../core/session.js";
import { Refusal } from "./notice.js";
import { Page } from "./page.js";
import { Plain } from "./panel.js";

export function Login() {
  const [how, setHow] = useState(null);
  const [problem, setProblem] = useState(null);
  useEffect(() => {
    call("GET", "/session").then((answer) => {
      session.csrf = answer.csrf || "";
      setHow(answer.sign_in);
    }, setProblem);
  }, []);
  return html`<${Page} title="Log in">
    ${how === "users" && html`<${ByName} setProblem=${setProblem} />`}
    ${how === "tokens" && html`<${ByToken} setProblem=${setProblem} />`}
    <${Refusal} problem=${problem} />
  <//>`;
}

function ByName({ setProblem }) {
  const [user, setUser] = useState("");
  const [secret, setSecret] = useState("");
  const submit = async () => {
    const { csrf } = await call("POST", "/session", { body: { user, secret } });
    session.entered(csrf);
  };
  return html`<${Form}
    title="Your user at the brokers"
    submit=${submit}
    setProblem=${setProblem}
    note="You are logged out after 30 minutes without a request."
  >
    <${Field} id="user" label="User" complete="username" value=${user} set=${setUser} />
    <${Field}
      id="secret"
      label="Secret or password"
      type="password"
      complete="current-password"
      value=${secret}
      set=${setSecret}
    />
  <//>`;
}

function ByToken({ setProblem }) {
  const [token, setToken] = useState("");
  const submit = async () => {
    await call("GET", "/v1/me", { headers: { Authorization: `Bearer ${token}` } });
    session.login(token);
  };
  return html`<${Form}
    title="This API requires a token"
    submit=${submit}
    setProblem=${setProblem}
    note="The token is kept until this tab is closed."
  >
    <${Field}
      id="token"
      label="Token"
      type="password"
      complete="current-password"
      value=${token}
      set=${setToken}
    />
  <//>`;
}

function Form({ title, submit, setProblem, note, children }) {
  const sent = async (event) => {
    event.preventDefault();
    try {
      await submit();
    } catch (refused) {
      setProblem(refused);
    }
  };
  return html`<${Plain} title=${title}>
    <form class="ask" onSubmit=${sent}>
      ${children}
      <button class="primary">Log in</button>
    </form>
    <p class="padded quiet">${note}</p>
  <//>`;
}

function Field({ id, label, type = "text", complete, value, set }) {
  return html`<div class="field">
    <label for=${id}>${label}</label>
    <input
      id=${id}
      type=${type}
      required
      autocomplete=${complete}
      value=${value}
      onInput=${(event) => set(event.target.value)}
    />
  </div>`;
}
