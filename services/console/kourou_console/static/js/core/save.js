// Saves a response of the API as a file; the request includes the token.

import { blob } from "./api.js";

export async function save(path, query, name) {
  const url = URL.createObjectURL(await blob(path, query));
  Object.assign(document.createElement("a"), { href: url, download: name }).click();
  URL.revokeObjectURL(url);
}
