// Hooks that pages share: requests with periodic refresh, and the session.

import { get } from "./api.js";
import { useEffect, useRef, useState } from "./dom.js";
import { session } from "./session.js";

/** Renders again when the session changes. */
export function useSession() {
  const [, redraw] = useState(0);
  useEffect(() => session.watch(() => redraw((times) => times + 1)), []);
  return session;
}

/** Calls `work` at the session's refresh interval, while the tab is visible. */
export function useEvery(work, on = true) {
  const latest = useRef(work);
  latest.current = work;
  const { every_s: every } = useSession();
  useEffect(() => {
    if (!on || !every) return undefined;
    const timer = setInterval(() => document.hidden || latest.current(), every * 1000);
    return () => clearInterval(timer);
  }, [every, on]);
}

/**
 * {answer, problem, loading, refresh} of a GET request. Path null: nothing is requested yet. The
 * previous response is kept during a refresh; an error is returned in addition to it. `live` false:
 * refresh on demand only. If a response takes longer than the interval, the next refresh waits.
 */
export function useAsk(path, params = {}, query = {}, { live = true } = {}) {
  const key = path && JSON.stringify([path, params, query]);
  const [state, setState] = useState({ key: null, answer: null, problem: null, loading: true });
  const [turn, setTurn] = useState(0);
  const refresh = () => setTurn((number) => number + 1);
  useEffect(() => {
    if (!key) return undefined;
    const stop = new AbortController();
    setState((was) => ({
      ...was,
      answer: was.key === key ? was.answer : null,
      loading: true,
      key,
    }));
    get(path, params, query, { signal: stop.signal }).then(
      (answer) => setState({ key, answer, problem: null, loading: false }),
      (problem) =>
        problem.name === "AbortError" ||
        setState((was) => ({ ...was, key, problem, loading: false })),
    );
    return () => stop.abort();
  }, [key, turn]);
  // A new request never shows the response to the previous one.
  const mine = state.key === key;
  const loading = Boolean(key) && (!mine || state.loading);
  useEvery(() => loading || refresh(), live && Boolean(key));
  return {
    answer: mine ? state.answer : null,
    problem: mine ? state.problem : null,
    loading,
    refresh,
  };
}
