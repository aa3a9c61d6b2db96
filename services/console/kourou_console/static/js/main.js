// Entry point of the console: the list of pages, and the frame around them.

import { html, render, useEffect, useRef, useState } from "./core/dom.js";
import { useSession } from "./core/hooks.js";
import { match, parse } from "./core/route.js";
import { applyTheme } from "./core/session.js";
import { Bar } from "./parts/bar.js";
import { Login } from "./parts/login.js";
import { Nav } from "./parts/nav.js";
import { Notice, Toasts } from "./parts/notice.js";

// A page's module is loaded when the page is first opened.
const ROUTES = [
  { path: "", nav: "", load: () => import("./pages/overview.js") },
  // Alarms are part of the overview.
  { path: "alarms", nav: "", load: () => import("./pages/overview.js") },
  { path: "cluster", nav: "cluster", load: () => import("./pages/cluster.js") },
  { path: "cluster/:broker/:tab?", nav: "cluster", load: () => import("./pages/broker.js") },
  { path: "name-servers", nav: "name-servers", load: () => import("./pages/name_servers.js") },
  { path: "topics", nav: "topics", load: () => import("./pages/topics.js") },
  { path: "topics/:topic/:tab?", nav: "topics", load: () => import("./pages/topic.js") },
  { path: "groups", nav: "groups", load: () => import("./pages/groups.js") },
  { path: "groups/:group/:tab?", nav: "groups", load: () => import("./pages/group.js") },
  { path: "producers", nav: "producers", load: () => import("./pages/producers.js") },
  { path: "messages", nav: "messages", load: () => import("./pages/messages.js") },
  { path: "messages/:id/:tab?", nav: "messages", load: () => import("./pages/message.js") },
  { path: "trace", nav: "trace", load: () => import("./pages/trace.js") },
  {
    path: "dead-letters/:group?",
    nav: "dead-letters",
    load: () => import("./pages/dead_letters.js"),
  },
  { path: "delayed", nav: "delayed", load: () => import("./pages/delayed.js") },
  { path: "transactions", nav: "transactions", load: () => import("./pages/transactions.js") },
  { path: "leases", nav: "leases", load: () => import("./pages/leases.js") },
  { path: "filters", nav: "filters", load: () => import("./pages/filters.js") },
  { path: "filters/:group/:name", nav: "filters", load: () => import("./pages/filter.js") },
  { path: "spark/:table?", nav: "spark", load: () => import("./pages/spark.js") },
  { path: "history", nav: "history", load: () => import("./pages/history.js") },
  { path: "audit", nav: "audit", load: () => import("./pages/audit.js") },
];

const NOWHERE = { route: { path: null, load: () => import("./pages/nowhere.js") }, params: {} };

function App() {
  const session = useSession();
  const [address, setAddress] = useState(() => parse(window.location.hash));
  const [menu, setMenu] = useState(false);
  useEffect(() => {
    const moved = () => {
      setAddress(parse(window.location.hash));
      setMenu(false);
    };
    window.addEventListener("hashchange", moved);
    return () => window.removeEventListener("hashchange", moved);
  }, []);
  const found = match(ROUTES, address.parts) || NOWHERE;
  return html`<div class="shell">
    <a class="skip button" href="#main" onClick=${toMain}>Skip to the page</a>
    <${Nav} current=${found.route.nav} open=${menu} close=${() => setMenu(false)} />
    <div>
      <${Bar} menu=${menu} setMenu=${setMenu} />
      <main id="main" class="page">
        ${
          session.locked
            ? html`<${Login} />`
            : html`<${Loaded} route=${found.route} params=${found.params} query=${address.query} />`
        }
      </main>
    </div>
    <${Toasts} />
  </div>`;
}

// The hash belongs to the router, so focus is moved by code.
function toMain(event) {
  event.preventDefault();
  document.querySelector("main h1")?.focus();
}

function Loaded({ route, params, query }) {
  const [loaded, setLoaded] = useState({});
  const began = useRef(false);
  useEffect(() => {
    let gone = false;
    route.load().then(
      (module) => gone || setLoaded({ route, page: module.default }),
      () => gone || setLoaded({ route, failed: true }),
    );
    return () => {
      gone = true;
    };
  }, [route]);
  const ready = loaded.route === route && loaded.page;
  useEffect(() => {
    if (!ready) return;
    // The first page does not change the focus; later ones announce themselves.
    if (began.current) document.querySelector("main h1")?.focus();
    began.current = true;
  }, [ready, JSON.stringify(params)]);
  if (loaded.failed && loaded.route === route) {
    return html`<h1 tabindex="-1">This page could not be loaded</h1>
      <${Notice} tone="bad" role="alert">Check that the console is running, then reload.<//>`;
  }
  if (!ready) return html`<p class="loading" role="status">Loading …</p>`;
  const Shown = loaded.page;
  return html`<${Shown} key=${JSON.stringify([route.path, params])} ...${params} query=${query} />`;
}

applyTheme();
render(html`<${App} />`, document.getElementById("console"));
