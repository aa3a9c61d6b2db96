"""`kourou tail`: prints messages as they arrive.

Nothing is committed, so the offsets of all groups stay unchanged.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import stat
import sys
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from kourou.client.client import Client
from kourou.client.consumer.received import ReceivedMessage
from kourou.model.message import RESERVED_PROPERTIES
from kourou.model.names import TAIL_GROUP
from kourou.telemetry.logs import printable

BODY_CHARACTERS_SHOWN = 400


@dataclass(frozen=True, slots=True)
class TailOptions:
    """What to show; a `count` of None means until interrupted."""

    tag: str = "*"
    first: bool = False
    count: int | None = None
    group: str = TAIL_GROUP
    as_json: bool = False


def run_tail(namesrv: str | None, topic: str, options: TailOptions) -> int:
    """Print messages until the count is reached, Ctrl-C is pressed, or the reader of the pipe ends.

    Returns 1 if the reader ended, as every command with a closed output pipe does.
    """
    show = as_json_line if options.as_json else as_text_line

    async def follow() -> None:
        left = options.count
        _end_with_reader()
        _print_waiting(topic, options)
        async with aclosing(_messages(namesrv, topic, options)) as messages:
            async for message in messages:
                print(show(message), flush=True)
                if left is not None:
                    left -= 1
                    if left == 0:
                        return

    try:
        asyncio.run(follow())
    except asyncio.CancelledError:
        return 1
    return 0


def _end_with_reader() -> None:
    """Cancel this task when the reader of the pipe, such as `head`, ends, even before the next
    write.
    """
    output = _output_pipe()
    if output is None:
        return
    loop, task = asyncio.get_running_loop(), asyncio.current_task()

    def end() -> None:
        loop.remove_reader(output)
        if task is not None:
            task.cancel()

    loop.add_reader(output, end)  # the writing end of a pipe reports no other event


def _output_pipe() -> int | None:
    """The descriptor of standard output if it is a pipe."""
    try:
        number = sys.stdout.fileno()
    except (AttributeError, OSError, ValueError):  # closed, or replaced by a test or a notebook
        return None
    return number if stat.S_ISFIFO(os.fstat(number).st_mode) else None


def _print_waiting(topic: str, options: TailOptions) -> None:
    """Tell the user that the command is waiting and not hanging."""
    if sys.stdout.isatty() and sys.stderr.isatty():
        since = "from the oldest on" if options.first else "that come from now on"
        print(f"messages of {topic} {since}; Ctrl-C ends", file=sys.stderr, flush=True)


async def _messages(
    namesrv: str | None, topic: str, options: TailOptions
) -> AsyncGenerator[ReceivedMessage, None]:
    async with Client(namesrv, group=options.group) as client:
        consumer = await client.pull_consumer(options.group)
        queues = await consumer.queues(topic)
        await consumer.assign(queues, expression=options.tag)
        for queue in queues:
            place = consumer.min_offset if options.first else consumer.max_offset
            await consumer.seek(queue, await place(queue))
        while True:
            for message in await consumer.poll():
                yield message


def as_text_line(message: ReceivedMessage) -> str:
    """One line: time, queue and offset, tag, keys, body; unprintable characters are escaped."""
    moment = datetime.fromtimestamp(message.store_timestamp / 1000).astimezone()
    place = f"{message.queue.broker_name}/{message.queue.queue_id}@{message.offset}"
    parts = [moment.strftime("%H:%M:%S.%f")[:-3], place]
    if message.tag:
        parts.append(f"[{message.tag}]")
    if message.keys:
        parts.append(" ".join(message.keys))
    return printable("  ".join([*parts, _text(message.raw_body)]))


def as_json_line(message: ReceivedMessage) -> str:
    """One JSON object; a body that is not UTF-8 goes into `body_base64`."""
    facts: dict[str, Any] = {
        "topic": message.queue.topic,
        "broker": message.queue.broker_name,
        "queue": message.queue.queue_id,
        "offset": message.offset,
        "message_id": message.message_id,
        "store_timestamp": message.store_timestamp,
        "tag": message.tag,
        "keys": list(message.keys),
        "properties": {
            name: value
            for name, value in message.properties.items()
            if name not in RESERVED_PROPERTIES
        },
    }
    try:
        facts["body"] = message.raw_body.decode()
    except UnicodeDecodeError:
        facts["body_base64"] = base64.b64encode(message.raw_body).decode()
    return json.dumps(facts)


def _text(body: bytes) -> str:
    try:
        text = body.decode()
    except UnicodeDecodeError:
        text = f"{len(body)} bytes: {body[: BODY_CHARACTERS_SHOWN // 8].hex(' ')}"
    if len(text) > BODY_CHARACTERS_SHOWN:
        return f"{text[:BODY_CHARACTERS_SHOWN]}… ({len(text)} characters)"
    return text
