"""`kourou send`: sends messages from the command line or from stdin.

Bodies are bytes: the input is sent unchanged, whatever its encoding.
"""

from __future__ import annotations

import errno
import json
import os
import queue
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import BinaryIO

from kourou.errors import ConfigError, MessageIllegal
from kourou.model.limits import BODY_SIZE_BYTES_MAX
from kourou.model.message import Message, SendResult
from kourou.sync import Client

GROUP = "kourou-send"
CHUNK = 500
"""The most lines of stdin that are sent together."""

LINE_BYTES_MAX = BODY_SIZE_BYTES_MAX + len(b"\r\n")


@dataclass(frozen=True, slots=True)
class SendOptions:
    """Options that apply to all messages of a command."""

    tag: str | None = None
    keys: Sequence[str] = ()
    properties: Sequence[str] = ()
    as_json: bool = False

    def message(self, topic: str, body: bytes) -> Message:
        """A message with these options."""
        given = dict(_split(entry) for entry in self.properties)
        return Message(topic, body, self.tag, tuple(self.keys), given)


def run_send(
    namesrv: str | None, topic: str, bodies: Sequence[str] | None, options: SendOptions
) -> int:
    """Send each body, or each line of stdin, and print where each was stored.

    An empty stdin is reported on stderr but is not a failure: a filter in the pipe may have passed
    nothing.
    """
    sent = 0
    with Client(namesrv, group=GROUP) as client:
        for texts in [[os.fsencode(body) for body in bodies]] if bodies else _typed_in():
            messages = [options.message(topic, text) for text in texts]
            for result in client.send_many(messages):
                print(_line(result, as_json=options.as_json), flush=True)
            sent += len(messages)
    if not sent:
        print("0 messages: standard input was empty", file=sys.stderr, flush=True)
    return 0


def _typed_in() -> Iterator[list[bytes]]:
    if sys.stdin is None:
        raise _no_bodies()
    if sys.stdin.isatty() and sys.stderr.isatty():
        print("one message a line; Ctrl-D ends", file=sys.stderr, flush=True)
    return arriving(sys.stdin.buffer)


def arriving(stream: BinaryIO) -> Iterator[list[bytes]]:
    """Yield lines as they arrive: available lines together, without waiting for more.

    Raises ConfigError if the stream is closed, MessageIllegal if a line is longer than a body may
    be.
    """
    # Bounded, so that a long file is read no faster than it is sent.
    waiting: queue.Queue[bytes | Exception | None] = queue.Queue(2 * CHUNK)

    def read() -> None:
        try:
            for line in _lines(stream):
                waiting.put(line)
            waiting.put(None)
        except Exception as error:  # noqa: BLE001 - re-raised by the reader
            waiting.put(error)

    threading.Thread(target=read, name="kourou-stdin", daemon=True).start()
    end: Exception | None = None
    going_on = True
    while going_on:
        chunk: list[bytes] = []
        entry = waiting.get()
        while going_on := isinstance(entry, bytes):
            chunk.append(entry)
            if len(chunk) == CHUNK:
                break
            try:
                entry = waiting.get_nowait()
            except queue.Empty:
                break
        if isinstance(entry, Exception):
            end = entry
        if chunk:
            yield chunk
    if isinstance(end, OSError) and end.errno == errno.EBADF:
        raise _no_bodies() from end
    if end is not None:
        raise end


def _lines(stream: BinaryIO) -> Iterator[bytes]:
    number = 0
    while line := stream.readline(LINE_BYTES_MAX + 1):
        number += 1
        if len(line) > LINE_BYTES_MAX:
            raise MessageIllegal(
                f"line {number} has more than {BODY_SIZE_BYTES_MAX:,} bytes; "
                "neither it nor later lines were sent"
            )
        yield line.removesuffix(b"\n").removesuffix(b"\r")


def _no_bodies() -> ConfigError:
    return ConfigError(
        "nothing to send: no body was given and standard input is closed",
        hint="give message bodies after the topic, or pipe lines to stdin",
    )


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
    return f"{result.status.value}  {place}@{result.offset}  {result.message_id}"
