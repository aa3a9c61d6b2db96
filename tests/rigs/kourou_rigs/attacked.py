"""A broker under attack, in this process, with a well-behaved client that must be served after it.

State: soft.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from kourou.access.signature import ACCESS_KEY, SIGNATURE, sign
from kourou.broker.broker_service import BrokerService
from kourou.broker.config import BrokerSettings
from kourou.errors import Code
from kourou.protocol.bodies.access_bodies import UserChange, encode_user_change, parse_role
from kourou.protocol.messages.access import AuthCreateUser
from kourou.protocol.request import Request
from kourou.protocol.table import REQUESTS
from kourou.protocol.wire.ext_fields import encode_ext_fields
from kourou.protocol.wire.remoting import FrameReader, HeaderType, RemotingCommand
from kourou.transport.curve_keys import make_pair
from kourou.transport.remoting_client import RemotingConnection
from kourou_rigs.key_folder import first_user
from kourou_rigs.served_here import ServedHere, served_here
from kourou_rigs.waiting import until

ASK_MS = 30_000
ROOT, TILL = "root", "till"
SECRETS = {ROOT: "a secret of the first one", TILL: "a secret of the till"}


class Attacked(ServedHere):
    """The broker; requests go to its listener for RocketMQ's clients."""

    def __init__(self, service: BrokerService, told: Mapping[str, str]) -> None:
        super().__init__(service, told)
        self.remoting = RemotingConnection(self.address("tcp"))
        self._writers: list[asyncio.StreamWriter] = []

    # -- well-behaved clients -----------------------------------------------------------------

    async def say(
        self,
        code: int,
        body: bytes = b"",
        *,
        user: str = "",
        header_type: HeaderType = HeaderType.JSON,
        **fields: object,
    ) -> RemotingCommand:
        """Send a request with these extension fields, signed by a user; return its reply."""
        texts = {name: str(value) for name, value in fields.items()}
        if user:
            texts = signed(user, texts, body)
        command = RemotingCommand(code, ext_fields=texts, header_type=header_type)
        return await self.remoting.exchange(command, (body,), timeout_ms=ASK_MS)

    async def request(self, request: Request, body: bytes = b"", user: str = "") -> RemotingCommand:
        """Send a request by its header."""
        short = REQUESTS[request.code].short_names
        fields: dict[str, Any] = {**encode_ext_fields(request, short_names=short)}
        return await self.say(request.code, body, user=user, **fields)

    async def send(
        self, body: bytes = b"x", topic: str = "orders", user: str = "", **letters: object
    ) -> RemotingCommand:
        """Send one message."""
        given: dict[str, Any] = {
            "a": "p",
            "b": topic,
            "c": "TBW102",
            "d": 1,
            "e": 0,
            "f": 0,
            "g": 1,
            "h": 0,
        }
        return await self.say(310, body, user=user, **{**given, **letters})

    def stored(self, topic: str = "orders") -> int:
        """How many messages the broker has accepted for queue 0 of a topic."""
        count: int = self.core.parts.appends.next_offset((topic, 0))
        return count

    # -- attackers ----------------------------------------------------------------------------

    async def connect(self, listener: str = "tcp") -> tuple[asyncio.StreamReader, Any]:
        """A bare connection."""
        host, _, port = self.address(listener).rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        self._writers.append(writer)
        return reader, writer

    async def answers(self, *sent: bytes) -> list[RemotingCommand]:
        """Send bytes on a new connection; what came back until the broker or the test closed it.

        A request at their end shows that the connection still works.
        """
        reader, writer = await self.connect()
        writer.writelines(sent)
        frames, found = FrameReader(), []
        while data := await _read(reader):
            found += frames.feed(data)
            if any(one.opaque == LAST for one in found):
                break
        writer.close()
        self._writers.remove(writer)
        return found

    # -- afterwards ---------------------------------------------------------------------------

    def statistics(self, protocol: str = "tcp", listener: str = "internal") -> Mapping[str, int]:
        """The counters of a listener."""
        found: Mapping[str, int] = self.service._listening.protocols.statistics()[protocol][
            listener
        ]
        return found

    async def serves(self, user: str = "") -> None:
        """Check that a well-behaved client is served, and that nothing of attackers is kept."""
        for writer in self._writers:
            writer.close()
        reply = await self.send(b"after", "orders-after", user)
        assert reply.code == Code.SUCCESS, reply.remark
        await until(lambda: self.statistics()["peers"] == 1)
        for protocol in ("tcp", "zmq"):
            counted = self.statistics(protocol)
            assert (counted["unfinished_bytes"], counted["queued_bytes"]) == (0, 0)

    def close(self) -> None:
        """Close all connections."""
        for writer in self._writers:
            writer.close()
        self.remoting.close()


LAST = 99_999
"""The opaque number of the last request of an attack."""


async def _read(reader: asyncio.StreamReader) -> bytes:
    try:
        async with asyncio.timeout(ASK_MS / 1_000):
            return await reader.read(1 << 16)
    except ConnectionError:
        return b""


def signed(user: str, fields: Mapping[str, str], body: bytes = b"") -> dict[str, str]:
    """The fields of a request, with the user's signature."""
    named = {**fields, ACCESS_KEY: user}
    return {**named, SIGNATURE: sign(named, [body], SECRETS[user])}


def raw_frame(header: bytes, body: bytes = b"", header_type: int = 0) -> bytes:
    """A frame whose lengths are right."""
    word = header_type << 24 | len(header)
    return struct.pack(">II", 4 + len(header) + len(body), word) + header + body


@asynccontextmanager
async def broker_in(folder: Path, **settings: object) -> AsyncIterator[Attacked]:
    """A broker with its store in a folder; at the end, it must not have failed."""
    given: dict[str, Any] = {
        "store_root": folder / "store",
        "listen_port": 0,
        "replication_port": 0,
        "admin_enabled": False,
        "segment_size_bytes": 16 << 20,
        "broker_name": "broker-a",
        **settings,
    }
    async with served_here(BrokerService(BrokerSettings(**given)), Attacked) as one:
        yield one
        one.close()


@asynccontextmanager
async def broker_with_users(folder: Path, **settings: object) -> AsyncIterator[Attacked]:
    """A broker with an administrator and a user of topics that begin with `orders`."""
    files = [Path(path) for path in first_user(folder, f"{ROOT}:{SECRETS[ROOT]}").values()]
    settings = {"access_key_file": files[0], "initial_admin_file": files[1], **settings}
    async with broker_in(folder, **settings) as one:
        roles = tuple(map(parse_role, ("writer:orders", "operator:orders")))
        change = encode_user_change(UserChange(secret=SECRETS[TILL], roles=roles))
        made = await one.request(AuthCreateUser(username=TILL), change, ROOT)
        assert made.code == Code.SUCCESS, made.remark
        yield one


def key_pairs(folder: Path, *names: str) -> dict[str, Path]:
    """Make a CURVE key pair of each name, that of `broker` for its address; the secret files."""
    return {
        name: make_pair(folder / name, name, ["127.0.0.1"] if name == "broker" else [])[1]
        for name in names
    }
