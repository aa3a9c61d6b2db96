// Calls of the API under /v1 and of /session, and their errors.

import { EventParser } from "./sse.js";
import { session } from "./session.js";

/** An error, from its problem details. `status` is 0 if there was no response. */
export class Problem extends Error {
  constructor(fields) {
    super(fields.detail || fields.title || "The request failed");
    Object.assign(this, { status: 0, title: "", detail: "", hint: "", code_name: "" }, fields);
  }
}

/** `fill("/v1/topics/{topic}", {topic: "a/b"})` escapes the inserted values. */
export function fill(path, params) {
  return path.replace(/\{(\w+)\}/g, (_, name) => encodeURIComponent(params[name]));
}

/** `?a=1&b=2&b=3`; null, undefined and "" are omitted, lists are repeated. */
export function search(query) {
  const pairs = Object.entries(query).flatMap(([name, value]) =>
    (Array.isArray(value) ? value : [value])
      .filter((one) => one !== null && one !== undefined && one !== "")
      .map((one) => [name, String(one)]),
  );
  return pairs.length ? `?${new URLSearchParams(pairs)}` : "";
}

/** Returns the response's value; throws Problem. `body` is sent as JSON. */
export async function call(method, path, options = {}) {
  const response = await request(method, path, options);
  if (response.status === 204) return null;
  const type = response.headers.get("Content-Type") || "";
  return type.includes("json") ? response.json() : response.text();
}

export const get = (path, params = {}, query = {}, options = {}) =>
  call("GET", fill(path, params), { ...options, query });

/** Returns a whole response as a file, for downloads that need a token. */
export async function blob(path, query = {}) {
  return (await request("GET", path, { query })).blob();
}

/** Calls `handle` for every event until the stream ends or `signal` aborts. Throws Problem. */
export async function events(path, query, handle, signal) {
  const headers = { Accept: "text/event-stream" };
  const response = await request("GET", path, { query, headers, signal });
  const parser = new EventParser(handle);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    parser.push(value);
  }
}

async function request(method, path, { query = {}, body, headers = {}, signal } = {}) {
  const sent = { Accept: "application/json" };
  if (session.token) sent.Authorization = `Bearer ${session.token}`;
  else if (method !== "GET") sent["Csrf-Token"] = await forChanges();
  Object.assign(sent, headers);
  if (body !== undefined) sent["Content-Type"] = "application/json";
  let response;
  const url = path + search(query);
  const how = { method, headers: sent, signal, body: JSON.stringify(body) };
  try {
    // A broken connection does not show the result: requests without side effects are sent again.
    response = await fetch(url, how).catch((error) => {
      if (method !== "GET" || error.name === "AbortError") throw error;
      return fetch(url, how);
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem({
      title: "The console server does not respond",
      detail: "The console server does not respond.",
      hint: "Check that `kourou console` is running. A change may or may not have been applied: check before you repeat it.",
    });
  }
  if (!response.ok) {
    if (response.status === 401) session.refused();
    // Another tab may have signed in again.
    if (response.status === 403 && method !== "GET") session.csrf = null;
    throw new Problem({ ...(await said(response)), status: response.status });
  }
  return response;
}

/** The value of the header that changes need; empty without a session. */
async function forChanges() {
  if (session.csrf === null) session.csrf = (await call("GET", "/session")).csrf || "";
  return session.csrf;
}

async function said(response) {
  try {
    return await response.json();
  } catch {
    // Not problem details, for example from a proxy: only the status is known.
    return { title: `${response.status} ${response.statusText}` };
  }
}
