// A message's body in the three ways it can be looked at. Pure.

const ROW = 16;
// Deeper, the blanks before a line are more than the line.
const DEPTH_MAX = 100;

/** Bytes of base64 text. */
export function fromBase64(text) {
  return Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
}

/** Text, or null where the bytes are not UTF-8. A cut in the middle of a character is forgiven. */
export function asText(data, cut = false) {
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(data, { stream: cut });
  } catch {
    // Not text, which is an answer.
    return null;
  }
}

/**
 * Indented JSON, or null where the text is none. The text is indented, not what it means: a number
 * keeps all its digits, and names their order, also one that is there twice.
 */
export function asJson(text) {
  if (text === null || !/^\s*[[{"]/.test(text)) return null;
  try {
    JSON.parse(text);
  } catch {
    // Not JSON, which is an answer.
    return null;
  }
  return indented(text.match(TOKEN));
}

// Of a text that is known to be JSON: a string, a mark, or what else stands between blanks and marks.
const TOKEN = /"(?:[^"\\]|\\.)*"|[[\]{},:]|[^\s[\]{},:"]+/g;

function indented(tokens) {
  let text = "";
  let depth = 0;
  let before = "";
  for (const token of tokens) {
    const opened = before === "{" || before === "[";
    const closes = token === "}" || token === "]";
    if (closes) depth -= 1;
    if (closes ? !opened : opened || before === ",") text += `\n${"  ".repeat(depth)}`;
    text += shown(token);
    if (token === "{" || token === "[") depth += 1;
    if (depth > DEPTH_MAX) return null;
    before = token;
  }
  return text;
}

function shown(token) {
  if (token === ":") return ": ";
  // Escapes are read: what "\u00e9" says is easier seen as "é".
  return token.startsWith('"') ? JSON.stringify(JSON.parse(token)) : token;
}

/** Lines of offset, sixteen bytes, and what of them is ASCII. */
export function asHex(data) {
  const lines = [];
  for (let at = 0; at < data.length; at += ROW) {
    const row = [...data.subarray(at, at + ROW)];
    const hex = row.map((byte) => byte.toString(16).padStart(2, "0"));
    const left = hex.slice(0, 8).join(" ").padEnd(23);
    const right = hex.slice(8).join(" ").padEnd(23);
    const ascii = row.map((byte) => (byte >= 32 && byte < 127 ? String.fromCharCode(byte) : "."));
    lines.push(`${at.toString(16).padStart(8, "0")}  ${left}  ${right}  ${ascii.join("")}`);
  }
  return lines.join("\n");
}
