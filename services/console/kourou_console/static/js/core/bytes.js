// The three views of a message's body. Pure.

const ROW = 16;
// At deeper levels, indentation takes more space than content.
const DEPTH_MAX = 100;

/** Decodes base64. */
export function fromBase64(text) {
  return Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
}

/** Decodes text; null if the bytes are not UTF-8. A cut within the last character is accepted. */
export function asText(data, cut = false) {
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(data, { stream: cut });
  } catch {
    // Not text, which is a valid result.
    return null;
  }
}

/**
 * Indented JSON, or null if the text is not JSON. The text is indented, not its parsed value: so
 * numbers keep all their digits, and names keep their order, including duplicate ones.
 */
export function asJson(text) {
  if (text === null || !/^\s*[[{"]/.test(text)) return null;
  try {
    JSON.parse(text);
  } catch {
    // Not JSON, which is a valid result.
    return null;
  }
  return indented(text.match(TOKEN));
}

// For valid JSON: a string, a punctuation mark, or anything else between blanks and marks.
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
  // Escapes are decoded: "é" is easier to read than "\u00e9".
  return token.startsWith('"') ? JSON.stringify(JSON.parse(token)) : token;
}

/** Lines with the offset, sixteen bytes, and their ASCII characters. */
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
