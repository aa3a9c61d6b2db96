// Numbers, sizes and times as text. Pure. Unknown values are MISSING, never 0.

export const MISSING = "—";

const SIZES = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

/** Whether there is a value to show. 0, false and "" are values. */
export function known(value) {
  return value !== null && value !== undefined && !Number.isNaN(value);
}

export function count(value) {
  return known(value) ? Number(value).toLocaleString("en-GB") : MISSING;
}

/** Three significant digits: 0.12, 3.4, 56.7, 1,234, 1.2 M. */
export function figure(value) {
  if (!known(value)) return MISSING;
  const size = Math.abs(value);
  if (size >= 1e9) return `${digits(value / 1e9)} G`;
  if (size >= 1e6) return `${digits(value / 1e6)} M`;
  return digits(value);
}

export function rate(value) {
  return known(value) ? `${figure(value)}/s` : MISSING;
}

export function bytes(value) {
  if (!known(value)) return MISSING;
  let size = Number(value);
  let unit = 0;
  while (Math.abs(size) >= 1024 && unit < SIZES.length - 1) {
    size /= 1024;
    unit += 1;
  }
  return `${unit === 0 ? size : digits(size)} ${SIZES[unit]}`;
}

/** A ratio between 0 and 1. */
export function percent(value) {
  return known(value) ? `${digits(value * 100)} %` : MISSING;
}

/** 850 µs, 12 ms, 3.4 s, 2 min 5 s, 3 h 4 min, 2 d 1 h. */
export function duration(ms) {
  if (!known(ms)) return MISSING;
  if (ms < 0) return `−${duration(-ms)}`;
  if (ms === 0) return "0 s";
  if (ms < 1) return `${digits(ms * 1000)} µs`;
  if (ms < 1000) return `${digits(ms)} ms`;
  const seconds = ms / 1000;
  if (seconds < 60) return `${digits(seconds)} s`;
  const units = [
    [86400, "d", 3600, "h"],
    [3600, "h", 60, "min"],
    [60, "min", 1, "s"],
  ];
  const [large, name, small, smallName] = units.find(([unit]) => seconds >= unit);
  const rest = Math.floor((seconds % large) / small);
  return `${Math.floor(seconds / large)} ${name}${rest ? ` ${rest} ${smallName}` : ""}`;
}

/** Local time of day with milliseconds; with the date if it is not today. */
export function time(ms, now = Date.now()) {
  if (!known(ms)) return MISSING;
  const at = new Date(ms);
  const clock = `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
  const fine = `${clock}.${String(at.getMilliseconds()).padStart(3, "0")}`;
  return at.toDateString() === new Date(now).toDateString() ? fine : `${day(at)} ${fine}`;
}

/** Local date and time to the second. */
export function moment(ms) {
  if (!known(ms)) return MISSING;
  const at = new Date(ms);
  return `${day(at)} ${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
}

/** Whether an unknown field is a point in time: `*_ms` may also be a duration, which is short. */
export function isMoment(name, value) {
  return name.endsWith("_ms") && typeof value === "number" && value > 1e11;
}

/** The value of `<input type="datetime-local" step="1">`. */
export function fieldTime(ms) {
  return known(ms) ? moment(ms).replace(" ", "T") : "";
}

/** Milliseconds since the epoch from such a field; null if it is empty or invalid. */
export function fromFieldTime(text) {
  const ms = text ? new Date(text).getTime() : NaN;
  return Number.isNaN(ms) ? null : ms;
}

/** "3 messages", "1 message". */
export function plural(number, word, words = `${word}s`) {
  if (!known(number)) return `${MISSING} ${words}`;
  return `${count(number)} ${number === 1 ? word : words}`;
}

function digits(value) {
  const size = Math.abs(value);
  if (size >= 100) return Math.round(value).toLocaleString("en-GB");
  const places = size >= 10 ? 1 : 2;
  return String(Number(value.toFixed(places)));
}

function day(at) {
  return `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
}

function two(number) {
  return String(number).padStart(2, "0");
}
