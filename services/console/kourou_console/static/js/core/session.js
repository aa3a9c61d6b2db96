// The state of this browser tab: token, colour scheme, refresh interval. Soft.

const TOKEN = "kourou.token";
const THEME = "kourou.theme";
const EVERY = "kourou.refresh_s";

const watchers = new Set();

function changed() {
  for (const watcher of watchers) watcher();
}

export const session = {
  token: sessionStorage.getItem(TOKEN) || "",
  /** The server requires a token, and none is set. */
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

  logout() {
    this.token = "";
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
