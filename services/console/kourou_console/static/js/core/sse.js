// Parses server-sent events from a response's stream. EventSource cannot send a token; fetch can.

/** Accepts pieces of text; calls `handle({event, data, id})` for each complete event. */
export class EventParser {
  constructor(handle) {
    this.handle = handle;
    this.rest = "";
    this.fields = { event: "message", data: [], id: null };
  }

  push(text) {
    const lines = (this.rest + text).split(/\r\n|\n|\r/);
    this.rest = lines.pop();
    for (const line of lines) this.take(line);
  }

  take(line) {
    if (line === "") {
      const { event, data, id } = this.fields;
      if (data.length) this.handle({ event, data: data.join("\n"), id });
      this.fields = { event: "message", data: [], id };
    } else if (!line.startsWith(":")) {
      const [name, value = ""] = line.split(/: ?(.*)/s);
      if (name === "data") this.fields.data.push(value);
      else if (name === "event" || name === "id") this.fields[name] = value;
    }
  }
}
