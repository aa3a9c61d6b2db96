// The state of this browser tab: credentials, colour scheme, refresh interval. Soft.

const TOKEN = "kourou.token";
const THEME = "kourou.theme";
const EVERY = "kourou.refresh_s";

const watchers = new Set();

function changed() {
  for (const watcher of watchers) watcher();
}

export const session = {
  token: sessionStorage.getItem(TOKEN) || "",
  /** What changes by a signed-in user have to carry; null: not asked yet, "": nothing. */
  csrf: null,
  /** The server requires credentials, and there are none. */
  locked: false,
  theme: localStorage.getItem(THEME) || "auto",
  every_s: Number(localStorage.getItem(EVERY) ?? 10),

  watch(watcher) {
    watchers.add(watcher);
    return () => watchers.delete(watcher);
  },

  /** The token is kept as long as the tab is open. */
  login(token) {
    this.token = token;
    this.locked = false;
    sessionStorage.setItem(TOKEN, token);
    changed();
  },

  /** A user has signed in: the browser has a cookie, which no script can read. */
  entered(csrf) {
    this.csrf = csrf;
    this.locked = false;
    changed();
  },

  logout() {
    this.token = "";
    this.csrf = null;
    this.locked = true;
    sessionStorage.removeItem(TOKEN);
    changed();
  },

  refused() {
    if (this.locked) return;
    this.locked = true;
    changed();
  },

  setTheme(theme) {
    this.theme = theme;
    localStorage.setItem(THEME, theme);
    applyTheme();
    changed();
  },

  setEvery(seconds) {
    this.every_s = seconds;
    localStorage.setItem(EVERY, String(seconds));
    changed();
  },
};

export function applyTheme() {
  if (session.theme === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = session.theme;
}
