// Hooks that pages share: asking the API, and again every few seconds; following the session.

import { get } from "./api.js";
import { useEffect, useRef, useState } from "./dom.js";
import { session } from "./session.js";

/** Draws again whenever the session changes. */
export function useSession() {
  const [, redraw] = useState(0);
  useEffect(() => session.watch(() => redraw((times) => times + 1)), []);
  return session;
}

/** Calls `work` every so many seconds of the session's setting, while the tab is looked at. */
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
 * {answer, problem, loading, refresh} of a GET. Pass path null to ask nothing yet. What was there
 * stays while it is asked again; a refusal stands beside it. `live` false: only by hand. An answer
 * that takes longer than the session's seconds is waited for, not asked for anew.
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
  // A new question never shows the answer to the last one.
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
