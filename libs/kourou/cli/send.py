"""`kourou send`: messages from the command line or from stdin.

Lives here: reading bodies and printing results. May not live here: sending (kourou.sync).
"""

from __future__ import annotations

import json
import queue
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from kourou.errors import ConfigError
from kourou.model.message import Message, SendResult
from kourou.sync import Client

GROUP = "kourou-send"
CHUNK = 500
"""Lines of stdin that travel together, if they are there."""


@dataclass(frozen=True, slots=True)
class SendOptions:
    """What all messages of one command have in common."""

    tag: str | None = None
    keys: Sequence[str] = ()
    properties: Sequence[str] = ()
    as_json: bool = False

    def message(self, topic: str, body: str) -> Message:
        """One message with them."""
        given = dict(_split(entry) for entry in self.properties)
        return Message(topic, body.encode(), self.tag, tuple(self.keys), given)


def run_send(
    namesrv: str | None, topic: str, bodies: Sequence[str] | None, options: SendOptions
) -> int:
    """Send each body, or each line of stdin; print where each one went."""
    with Client(namesrv, group=GROUP) as client:
        for texts in [bodies] if bodies else arriving(sys.stdin):
            messages = [options.message(topic, text) for text in texts]
            for result in client.send_many(messages):
                print(_line(result, as_json=options.as_json), flush=True)
    return 0


def arriving(lines: Iterable[str]) -> Iterator[list[str]]:
    """Lines as they come: those that are there already, together; none is kept waiting."""
    waiting: queue.SimpleQueue[str | None] = queue.SimpleQueue()

    def read() -> None:
        for line in lines:
            waiting.put(line.rstrip("\n"))
        waiting.put(None)

    threading.Thread(target=read, name="kourou-stdin", daemon=True).start()
    while (line := waiting.get()) is not None:
        chunk = [line]
        while len(chunk) < CHUNK:
            try:
                another = waiting.get_nowait()
            except queue.Empty:
                break
            if another is None:
                yield chunk
                return
            chunk.append(another)
        yield chunk


def _split(entry: str) -> tuple[str, str]:
    name, equals, value = entry.partition("=")
    if not equals:
        raise ConfigError(f"--property {entry!r} has no '='", hint="write --property NAME=VALUE")
    return name, value


def _line(result: SendResult, *, as_json: bool) -> str:
    if as_json:
        return json.dumps(
            {
                "status": result.status.value,
                "message_id": result.message_id,
                "broker": result.queue.broker_name,
                "queue": result.queue.queue_id,
                "offset": result.offset,
                "offset_message_id": result.offset_message_id,
            }
        )
    place = f"{result.queue.broker_name}/{result.queue.queue_id}"
    return f"{result.status.value}  {place} offset {result.offset}  {result.message_id}"
