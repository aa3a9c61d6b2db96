"""The HTTP gateway's driver: `python -m kourou_bench.gateway_driver key=value …`.

    address    the gateway's host:port, `|`, the name server's address (for topics and counts)

A consumer runs CONSUMERS loops. Each leases up to LEASED messages, reads their bodies and
acknowledges them in one request.
"""

from __future__ import annotations

import asyncio
import base64
import itertools
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Self

import msgspec

from kourou.client.client import Client
from kourou.errors import Unavailable
from kourou_bench.driving import (
    BODIES,
    Drain,
    DriverOptions,
    Measure,
    Outcome,
    Prepare,
    flooding,
    run_driver,
)
from kourou_bench.loading import load, plain, stored

CONSUMERS = 4
LEASED = 256
WAIT_MS = 1_000


class HttpConnection:
    """One HTTP connection; one request at a time."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def __aenter__(self) -> Self:
        host, _, port = self._address.rpartition(":")
        self._reader, self._writer = await asyncio.open_connection(host, int(port))
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._writer is not None
        self._writer.close()

    async def post(self, path: str, body: bytes, kind: str = "application/json") -> bytes:
        """Returns the body of the response; raises Unavailable unless it is a success."""
        assert self._reader is not None
        assert self._writer is not None
        head = (
            f"POST {path} HTTP/1.1\r\nHost: {self._address}\r\nContent-Type: {kind}\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        self._writer.write(head.encode() + body)
        answer = await self._reader.readuntil(b"\r\n\r\n")
        length = 0
        for line in answer.split(b"\r\n")[1:]:
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                length = int(value)
        content = await self._reader.readexactly(length)
        status = answer[9:12]
        if not status.startswith(b"2"):
            raise Unavailable(f"the gateway answers {status.decode()}: {content[:200]!r}")
        return content


def main(arguments: Sequence[str]) -> int:
    """Prepare the workload that the arguments name, and run it at each command."""
    return run_driver(arguments, WORKS)


@asynccontextmanager
async def _send(options: DriverOptions) -> AsyncIterator[Measure]:
    topic = "bench-gateway-send"
    gateway, _, name_server = options.address.partition("|")
    bodies = options.bodies()
    encode = msgspec.json.Encoder().encode
    free: list[HttpConnection] = []
    async with Client(name_server) as client, AsyncExitStack() as stack:
        await client.admin.topics.create(topic, queues=options.queues)
        connections = (HttpConnection(gateway) for _ in range(options.in_flight))
        free += [await stack.enter_async_context(one) for one in connections]

        async def send_one(number: int) -> None:
            connection = free.pop()
            body = bodies[number % BODIES]
            path = f"/v1/topics/{topic}/messages"
            await connection.post(path, body, "application/octet-stream")
            free.append(connection)

        async def send_batch(number: int) -> None:
            connection = free.pop()
            batch = [
                {"body_base64": base64.b64encode(bodies[place % BODIES]).decode()}
                for place in range(number, number + options.batch)
            ]
            body = encode({"messages": batch})
            await connection.post(f"/v1/topics/{topic}/batches", body)
            free.append(connection)

        send = send_one if options.batch == 1 else send_batch
        yield flooding(options, send, lambda: stored(client, topic))


class _Message(msgspec.Struct):
    body: str | None = None
    body_base64: bytes | None = None

    @property
    def raw(self) -> bytes:
        """The raw body; it is valid text only by chance."""
        return self.body.encode() if self.body is not None else self.body_base64 or b""


class _Leased(msgspec.Struct):
    lease: str
    message: _Message


class _Received(msgspec.Struct):
    items: list[_Leased]


@asynccontextmanager
async def _consume(options: DriverOptions) -> AsyncIterator[Measure]:
    topic = "bench-consume"
    gateway, _, name_server = options.address.partition("|")
    groups = itertools.count()
    async with Client(name_server) as client:
        await client.admin.topics.create(topic, queues=options.queues)
        await load(client, options.messages, plain(topic, options.bodies()))

        async def measure(_: float) -> Outcome:
            drain = Drain(options.messages, options.size)
            await _drained(gateway, topic, f"{topic}-group-{next(groups)}", drain)
            return drain.outcome(await stored(client, topic))

        yield measure


async def _drained(gateway: str, topic: str, group: str, drain: Drain) -> None:
    query = {"max": LEASED, "wait_ms": WAIT_MS, "invisible_ms": 60_000, "begin": "first"}
    receive = msgspec.json.encode(query)
    encode, decode = msgspec.json.Encoder().encode, msgspec.json.Decoder(_Received).decode

    async def one_after_the_other() -> None:
        async with HttpConnection(gateway) as connection:
            while drain.handed < drain.goal:
                answer = await connection.post(f"/v1/groups/{group}/topics/{topic}/leases", receive)
                items = decode(answer).items
                if not items:
                    continue
                drain.take([one.message.raw for one in items])
                acks = encode({"leases": [one.lease for one in items]})
                await connection.post(f"/v1/groups/{group}/acks", acks)

    async with asyncio.TaskGroup() as tasks:
        for _ in range(CONSUMERS):
            tasks.create_task(one_after_the_other())
        await drain.wait()


WORKS: dict[str, Prepare] = {"send": _send, "consume": _consume}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
