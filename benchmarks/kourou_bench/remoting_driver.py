"""A driver of RocketMQ's protocol: `python -m kourou_bench.remoting_driver key=value …`.

    address     the broker's host:port
    work        `send`, or `send-signed`: by a user with a role and a policy, whom it creates

The frames are encoded and signed once, so that the driver takes little of the CPU time that the
broker needs, and needs the same for both kinds of sends.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import ssl
import sys
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from kourou.access.signature import ACCESS_KEY, SIGNATURE, sign
from kourou.errors import Code, Unavailable
from kourou.protocol.messages.access import AuthCreateAcl, AuthCreateUser
from kourou.protocol.messages.pulls import GetMaxOffset
from kourou.protocol.request import Request
from kourou.protocol.table import REQUESTS
from kourou.protocol.wire.ext_fields import encode_ext_fields
from kourou.protocol.wire.remoting import FrameReader, RemotingCommand, encode_command
from kourou.transport.remoting_client import RemotingConnection
from kourou_bench.driving import DriverOptions, Measure, Outcome, Prepare, run_driver

SEND = 310
CONNECTIONS_MAX = 8
TIMEOUT_MS = 10_000
ADMINISTRATOR, USER = "root", "till"
SECRETS = {ADMINISTRATOR: "the-secret-of-root", USER: "the-secret-of-till"}
TOPIC = "orders"
FIELDS = {
    "a": "bench", "b": TOPIC, "c": "TBW102", "d": "1", "e": "0", "f": "0", "g": "1", "h": "0",
}  # fmt: skip


def signed(user: str, fields: Mapping[str, str], body: bytes) -> dict[str, str]:
    """The fields of a request with the user's signature; without a user they stay as they are."""
    if not user:
        return dict(fields)
    named = {**fields, ACCESS_KEY: user}
    return {**named, SIGNATURE: sign(named, [body], SECRETS[user])}


def send_frame(body: bytes, user: str = "") -> bytes:
    """A send of one message."""
    fields = signed(user, FIELDS, body)
    return encode_command(RemotingCommand(SEND, opaque=1, ext_fields=fields, body=body))


async def ask(address: str, request: Request, body: bytes = b"", user: str = "") -> RemotingCommand:
    """Send a request and return the reply; raises Unavailable if it is refused."""
    fields = signed(user, encode_ext_fields(request), body)
    connection = RemotingConnection(address)
    command = RemotingCommand(request.code, ext_fields=fields)
    reply = await connection.exchange(command, (body,), timeout_ms=TIMEOUT_MS)
    connection.close()
    if reply.code != Code.SUCCESS:
        raise Unavailable(f"{REQUESTS[request.code].name} was refused: {reply.remark}")
    return reply


async def create_user(address: str) -> None:
    """Let the administrator create USER with a role and a policy."""
    user = {"password": SECRETS[USER], "roles": [f"writer:{TOPIC}", f"operator:{TOPIC}"]}
    await ask(address, AuthCreateUser(username=USER), json.dumps(user).encode(), ADMINISTRATOR)
    entry = {"resource": f"Topic:{TOPIC}*", "actions": ["Pub"], "decision": "Allow"}
    policies = json.dumps({"policies": [{"entries": [entry]}]}).encode()
    await ask(address, AuthCreateAcl(subject=f"User:{USER}"), policies, ADMINISTRATOR)


@dataclass(frozen=True, slots=True)
class Sending:
    """Sends over several connections, each with a window of sends without a reply; the frames are
    used in turn.
    """

    address: str
    frames: Sequence[bytes]
    connections: int
    window: int
    context: ssl.SSLContext | None = None

    async def run(self, seconds: float) -> tuple[int, float]:
        """Send for a time; returns how many were stored, and the seconds until the last reply.

        Raises Unavailable if one is refused.
        """
        began = time.perf_counter()
        until = began + seconds
        counts = await asyncio.gather(*(self._one(until) for _ in range(self.connections)))
        return sum(counts), time.perf_counter() - began

    async def _one(self, until: float) -> int:
        host, _, port = self.address.rpartition(":")
        name = None if self.context is None else "localhost"
        reader, writer = await asyncio.open_connection(
            host, int(port), ssl=self.context, server_hostname=name
        )
        replies, stored, in_flight = FrameReader(), 0, self.window
        frames = itertools.cycle(self.frames)
        writer.write(b"".join(itertools.islice(frames, self.window)))
        while in_flight:
            data = await reader.read(1 << 16)
            if not data:
                raise Unavailable("the broker closed a connection")
            found = replies.feed(data)
            for one in found:
                if one.code != Code.SUCCESS:
                    raise Unavailable(f"a send was refused: {one.remark}")
            stored += len(found)
            in_flight -= len(found)
            if found and time.perf_counter() < until:
                writer.write(b"".join(itertools.islice(frames, len(found))))
                in_flight += len(found)
        writer.close()
        return stored


async def stored_in(address: str, user: str) -> int:
    """The number of messages in the topic's queue."""
    reply = await ask(address, GetMaxOffset(topic=TOPIC, queue_id=0), user=user)
    return int((reply.ext_fields or {})["offset"])


def main(arguments: Sequence[str]) -> int:
    """Prepare the workload that the arguments name, and run it at each command."""
    return run_driver(arguments, WORKS)


@asynccontextmanager
async def _send(options: DriverOptions) -> AsyncIterator[Measure]:
    user = USER if options.work == "send-signed" else ""
    if user:
        await create_user(options.address)
    connections = min(CONNECTIONS_MAX, options.in_flight)
    sending = Sending(
        options.address,
        [send_frame(body, user) for body in options.bodies()],
        connections,
        options.in_flight // connections,
    )
    await sending.run(0)  # creates the topic

    async def measure(seconds: float) -> Outcome:
        before = await stored_in(options.address, user)
        sent, took_s = await sending.run(seconds)
        return Outcome(
            work=options.work,
            values={"rate": sent / took_s},
            sent=sent,
            stored=await stored_in(options.address, user) - before,
            messages=sent,
            seconds=took_s,
        )

    yield measure


WORKS: dict[str, Prepare] = {"send": _send, "send-signed": _send}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
