// Addresses within the console: `#/topics/orders/status?kind=retry`. Pure, except for `go`.

/** {parts, query} of the text after `#`. Parts are decoded; invalid escapes are kept. */
export function parse(hash) {
  const [path, search = ""] = hash.replace(/^#\/?/, "").split("?");
  return {
    parts: path.split("/").filter(Boolean).map(decoded),
    query: Object.fromEntries(new URLSearchParams(search)),
  };
}

/** The address of a page: `link(["topics", "a/b"], {tab: "status"})`. Empty values are omitted. */
export function link(parts, query = {}) {
  const kept = Object.entries(query).filter(([, value]) => value !== "" && value != null);
  const search = new URLSearchParams(kept).toString();
  return `#/${parts.map(encodeURIComponent).join("/")}${search ? `?${search}` : ""}`;
}

/** The first matching one of `routes`, with the values of its `:names`; null if none matches. */
export function match(routes, parts) {
  for (const route of routes) {
    const found = fits(route.path.split("/").filter(Boolean), parts);
    if (found) return { route, params: found };
  }
  return null;
}

export function go(parts, query) {
  window.location.hash = link(parts, query);
}

function fits(pattern, parts) {
  if (parts.length > pattern.length) return null;
  const params = {};
  for (const [at, piece] of pattern.entries()) {
    const optional = piece.endsWith("?");
    if (at >= parts.length) {
      if (!optional) return null;
    } else if (piece.startsWith(":")) {
      params[piece.slice(1, optional ? -1 : undefined)] = parts[at];
    } else if (piece !== parts[at]) {
      return null;
    }
  }
  return params;
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    // A typed percent sign without an escape is taken literally.
    return text;
  }
}
