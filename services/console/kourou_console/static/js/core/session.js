// What this browser tab knows: token, colour scheme, how often panels refresh. Soft.

const TOKEN = "kourou.token";
const THEME = "kourou.theme";
const EVERY = "kourou.refresh_s";

const watchers = new Set();

function changed() {
  for (const watcher of watchers) watcher();
}

export const session = {
  token: sessionStorage.getItem(TOKEN) || "",
  /** The server wants a token that it has not been given. */
  locked: false,
  theme: localStorage.getItem(THEME) || "auto",
  every_s: Number(localStorage.getItem(EVERY) ?? 10),

  watch(watcher) {
    watchers.add(watcher);
    return () => watchers.delete(watcher);
  },

  /** The token lives as long as the tab. */
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
