// Pure functions of the console's scripts, by `node --test`; test_scripts.py runs it.
// The folder of the pages is the variable STATIC.

import assert from "node:assert/strict";
import { test } from "node:test";

globalThis.sessionStorage = { getItem: () => null };
globalThis.localStorage = { getItem: () => null };

const from = (name) => import(`${process.env.STATIC}/js/${name}.js`);
const { link, match, parse } = await from("core/route");
const {
  bytes,
  count,
  duration,
  figure,
  fromFieldTime,
  fieldTime,
  isMoment,
  percent,
  plural,
  rate,
  MISSING,
} = await from("core/format");
const { asHex, asJson, asText, fromBase64 } = await from("core/bytes");
const { EventParser } = await from("core/sse");
const { fill, search } = await from("core/api");
const { collected, initial } = await from("parts/fields");
const { filtered, sorted } = await from("parts/table");
const { laidOut } = await from("parts/waterfall");
const { moreOf } = await from("parts/scroll");
const { leftOf, topicField } = await from("parts/group_actions");
const { envelope } = await from("parts/topic_actions");
const { causeText, selection } = await from("parts/redrive");
const { after, gapText } = await from("parts/tail");
const { newestOf } = await from("pages/filter");

test("what is not known is never 0", () => {
  for (const format of [bytes, count, duration, figure, percent, rate]) {
    assert.equal(format(null), MISSING);
    assert.equal(format(undefined), MISSING);
    assert.notEqual(format(0), MISSING);
  }
  assert.equal(plural(null, "message"), `${MISSING} messages`);
  assert.deepEqual([plural(1, "message"), plural(0, "message")], ["1 message", "0 messages"]);
});

test("numbers have the digits that tell something", () => {
  assert.deepEqual([0.123, 4.567, 45.67, 456.7, 45678, 4567890, 4.5e9].map(figure), [
    "0.12",
    "4.57",
    "45.7",
    "457",
    "45,678",
    "4.57 M",
    "4.5 G",
  ]);
  assert.deepEqual([1023, 1024, 1536 * 1024].map(bytes), ["1023 B", "1 KiB", "1.5 MiB"]);
  assert.equal(percent(0.0405), "4.05 %");
});

test("durations have two units at most", () => {
  const given = [0, 0.25, 12, 3400, 125_000, 3_600_000, 11_040_000, 176_400_000, -3400];
  assert.deepEqual(given.map(duration), [
    "0 s",
    "250 µs",
    "12 ms",
    "3.4 s",
    "2 min 5 s",
    "1 h",
    "3 h 4 min",
    "2 d 1 h",
    "−3.4 s",
  ]);
});

test("the time of a field comes back as it went in, to the second", () => {
  const now = 1_795_314_480_000;
  assert.equal(fromFieldTime(fieldTime(now)), now);
  assert.equal(fromFieldTime(""), null);
  assert.equal(fromFieldTime("yesterday"), null);
});

test("what ends in _ms is a moment or a duration", () => {
  assert.equal(isMoment("window_ms", 1_795_314_480_000), true);
  assert.equal(isMoment("max_ms", 37), false);
  assert.equal(isMoment("mean_ms", null), false);
  assert.equal(isMoment("offset", 1_795_314_480_000), false);
});

test("addresses carry any name", () => {
  const address = link(["topics", "%RETRY%a/b", "status"], { kind: "retry", none: "", no: null });
  assert.equal(address, "#/topics/%25RETRY%25a%2Fb/status?kind=retry");
  assert.deepEqual(parse(address), {
    parts: ["topics", "%RETRY%a/b", "status"],
    query: { kind: "retry" },
  });
  assert.deepEqual(parse("#/topics/50%"), { parts: ["topics", "50%"], query: {} });
  assert.deepEqual(parse(""), { parts: [], query: {} });
});

test("the first route that fits is taken", () => {
  const routes = [{ path: "" }, { path: "topics" }, { path: "topics/:topic/:tab?" }];
  assert.equal(match(routes, []).route, routes[0]);
  assert.equal(match(routes, ["topics"]).route, routes[1]);
  assert.deepEqual(match(routes, ["topics", "a"]).params, { topic: "a" });
  assert.deepEqual(match(routes, ["topics", "a", "b"]).params, { topic: "a", tab: "b" });
  assert.equal(match(routes, ["topics", "a", "b", "c"]), null);
  assert.equal(match(routes, ["else"]), null);
});

test("paths and queries of the API are escaped", () => {
  assert.equal(fill("/v1/groups/{group}/lag", { group: "a/b %" }), "/v1/groups/a%2Fb%20%25/lag");
  assert.equal(
    search({ a: 0, b: ["x", "y&"], c: null, d: "", e: false }),
    "?a=0&b=x&b=y%26&e=false",
  );
  assert.equal(search({}), "");
});

test("a body is text, JSON or bytes", () => {
  const text = new TextEncoder().encode("é{}");
  assert.equal(asText(text), "é{}");
  assert.equal(asText(text.subarray(0, 1)), null);
  assert.equal(asText(text.subarray(0, 1), true), "", "cut inside a character");
  assert.equal(asText(Uint8Array.of(0xff)), null);
  assert.equal(asJson('{"a":1}'), '{\n  "a": 1\n}');
  assert.equal(asJson("{a}"), null);
  assert.equal(asJson("12"), null, "a number is better shown as it is");
  assert.equal(asJson(null), null);
  assert.deepEqual([...fromBase64("/wA=")], [255, 0]);
  assert.equal(
    asHex(new TextEncoder().encode("0123456789abcdefg\n")),
    "00000000  30 31 32 33 34 35 36 37  38 39 61 62 63 64 65 66  0123456789abcdef\n" +
      "00000010  67 0a                                             g.",
  );
});

test("JSON is indented, and says what was sent", () => {
  const sent = '{"order":12345678901234567890,"p":1.10,"p":-1E+400,"10":[ ],"2":{"s":"\\u00e9\\"{,}\\\\"}}';
  assert.equal(
    asJson(sent),
    `{
  "order": 12345678901234567890,
  "p": 1.10,
  "p": -1E+400,
  "10": [],
  "2": {
    "s": "é\\"{,}\\\\"
  }
}`,
  );
  for (const value of [[], {}, [[], [{}]], { a: [1, { b: null }], c: "" }, ["\u2028\ud800 :"], "x"]) {
    const indented = JSON.stringify(value, null, 2);
    assert.equal(asJson(JSON.stringify(value)), indented);
    assert.equal(asJson(indented), indented);
  }
  const nested = (depth) => "[".repeat(depth) + "]".repeat(depth);
  assert.notEqual(asJson(nested(100)), null);
  assert.equal(asJson(nested(101)), null, "its indents would be larger than itself");
});

test("events come whole, however they are cut", () => {
  const stream =
    ": alive\r\n\r\nid: 7\r\nevent: message\ndata: {\ndata: }\n\nevent: gap\ndata:1\n\n";
  for (const size of [1, 3, stream.length]) {
    const seen = [];
    const parser = new EventParser((event) => seen.push(event));
    for (let at = 0; at < stream.length; at += size) parser.push(stream.slice(at, at + size));
    assert.deepEqual(seen, [
      { event: "message", data: "{\n}", id: "7" },
      { event: "gap", data: "1", id: "7" },
    ]);
  }
});

test("a form says what was filled in, and nothing else", () => {
  const fields = [
    { name: "count", kind: "number", value: 8 },
    { name: "note" },
    { name: "force", kind: "checkbox" },
    { name: "to", value: "end" },
    { name: "at_ms", kind: "time", when: ({ to }) => to === "time" },
  ];
  assert.deepEqual(collected(fields, initial(fields)), { count: 8, force: false, to: "end" });
  assert.deepEqual(
    collected(fields, { count: "", note: "x", force: true, to: "time", at_ms: "" }),
    {
      note: "x",
      force: true,
      to: "time",
    },
  );
});

test("unknown values sort last, both ways", () => {
  const columns = [{ key: "lag" }];
  const rows = [{ lag: null }, { lag: 10 }, { lag: 9 }];
  const lags = (down) => sorted(rows, columns, { key: "lag", down }).map(({ lag }) => lag);
  assert.deepEqual(lags(false), [9, 10, null]);
  assert.deepEqual(lags(true), [10, 9, null]);
  assert.equal(sorted(rows, columns, null), rows);
  assert.deepEqual(filtered([{ a: "Orders" }, { a: null }], [{ key: "a" }], " ord "), [
    { a: "Orders" },
  ]);
});

test("spans stand below their parents, whatever they are told", () => {
  const spans = [
    { id: "c", parent: "s", start_ms: 5 },
    { id: "w", parent: "s", start_ms: null },
    { id: "s", parent: null, start_ms: 1 },
    { id: "o", parent: "elsewhere", start_ms: 3 },
  ];
  const rows = laidOut(spans).map(({ span, depth }) => `${span.id}${depth}`);
  assert.deepEqual(rows, ["s0", "c1", "w1", "o0"]);
});

test("a form becomes a message", () => {
  assert.deepEqual(
    envelope({ tag: "a", keys: " k1  k2 ", properties: "x=1\n\ny = a=b\nz", body: "" }),
    {
      tag: "a",
      keys: ["k1", "k2"],
      properties: { x: "1", y: "a=b" },
      body: "",
    },
  );
  assert.deepEqual(envelope({}), { body: "" });
  assert.deepEqual(selection({ tag: "a b", key: "k" }), { tag: ["a", "b"], key: "k" });
  assert.deepEqual(selection({ key: "k" }), { key: "k" });
  assert.deepEqual(selection({ cause: causeText("# of # failed") }), { cause: "# of # failed" });
});

test("a box says on which side it goes on", () => {
  const box = (scrollLeft) => ({ scrollLeft, clientWidth: 300, scrollWidth: 500 });
  assert.equal(moreOf(box(0)), "more-right");
  assert.equal(moreOf(box(100)), "more-left more-right");
  assert.equal(moreOf(box(199.5)), "more-left");
  assert.equal(moreOf({ scrollLeft: 0, clientWidth: 300, scrollWidth: 300.6 }), "");
});

test("why a group is listed that no broker has", () => {
  assert.equal(leftOf({ system: false, members: 0 }, []), "deleted; offsets kept");
  assert.equal(leftOf({ system: false, members: 2 }, []), "deleted; consumers are connected");
  assert.equal(leftOf({ system: true, members: 0 }, []), "by default");
  assert.equal(leftOf({ system: false, members: 0 }, [{}]), "some brokers do not respond");
});

test("a gap of the live tail is told until its queue is read again", () => {
  const gap = { queue: "t/a/3", from_offset: 5, to_offset: null, why: "away" };
  const message = { topic: "real", stored_topic: "t", broker: "a", queue: 3 };
  const began = { messages: [], gaps: [], gapsCut: false, seen: 0, problem: null };
  const told = after(after(began, "gap", gap), "gap", gap);
  assert.deepEqual(told.gaps, [gap]);
  assert.deepEqual(after(told, "message", { ...message, queue: 2 }).gaps, [gap]);
  const again = after(told, "message", message);
  assert.deepEqual([again.gaps, again.seen, again.messages], [[], 1, [message]]);
  assert.equal(gapText(gap), "Cannot read t/a/3 from offset 5; retrying. away");
});

test("what the live tail cannot show is told with its offsets, the last of it", () => {
  const lost = (from, to = from + 2) => ({ queue: "t/a/3", from_offset: from, to_offset: to, why: "gone" });
  const message = { stored_topic: "t", broker: "a", queue: 3 };
  let state = { messages: [], gaps: [], gapsCut: false, seen: 0, problem: null };
  for (let at = 0; at < 20; at += 1) state = after(state, "gap", lost(at));
  assert.equal(after(state, "message", message).gaps.length, 20);
  assert.equal(state.gapsCut, false);
  state = after(state, "gap", lost(20));
  assert.deepEqual([state.gaps.length, state.gaps[0].from_offset, state.gapsCut], [20, 1, true]);
  assert.equal(gapText(lost(5)), "Not shown: t/a/3, offsets 5 to 6. gone");
  assert.equal(gapText(lost(5, 0)), "Not shown: t/a/3, offset 5. gone", "it was made anew");
  assert.equal(after(state, "error", { title: "no" }).problem.title, "no");
});

test("the dead letters of a group are no topic whose lag it skips", () => {
  const field = topicField(["%DLQ%g", "orders", "returns"]);
  assert.deepEqual([field.options, field.value], [["orders", "returns"], "orders"]);
  for (const none of [["%DLQ%g"], [], undefined]) {
    assert.deepEqual(topicField(none), { name: "topic", label: "Topic", required: true });
  }
});

test("the newest version of a filter is asked for where it is", () => {
  const at = (broker, ...versions) => ({ broker, versions: versions.map((version) => ({ version })) });
  assert.deepEqual(newestOf([at("a", 1), at("b", 1, 2)]), { version: 2, broker: "b" });
  assert.deepEqual(newestOf([at("a", 1, 2), at("b", 2)]), { version: 2, broker: "a" });
  assert.equal(newestOf([]).version, 0);
});
