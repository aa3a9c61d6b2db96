"""Signed requests that are sent again by who captured them.

A signature has no time and no number, so in clear text a captured frame is accepted again, as by
RocketMQ. It proves no more than before: what its user lost, it has lost, too. TLS prevents it.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from kourou.access.model import Effect, Pattern, Policy
from kourou.errors import Code
from kourou.protocol.bodies.access_bodies import (
    UserChange,
    encode_policies,
    encode_user_change,
    parse_actions,
    policy_id,
)
from kourou.protocol.messages.access import AuthCreateAcl, AuthDeleteUser, AuthUpdateUser
from kourou.protocol.request import Request
from kourou.protocol.wire.remoting import FrameReader, RemotingCommand, encode_command
from kourou.transport.tls import TlsMode
from kourou_rigs.attacked import LAST, ROOT, TILL, Attacked, broker_with_users, signed
from kourou_rigs.certificates import Authority

LETTERS = {
    "a": "p", "b": "orders", "c": "TBW102", "d": "1", "e": "0", "f": "0", "g": "1", "h": "0",
}  # fmt: skip


def captured() -> bytes:
    """A send of till's, as it passes over the network."""
    fields = signed(TILL, LETTERS, b"body")
    command = RemotingCommand(310, opaque=LAST, ext_fields=fields, body=b"body")
    return encode_command(command)


def denied() -> tuple[Request, bytes]:
    """A policy that denies what was captured."""
    resource = Pattern.parse("Topic:orders")
    policy = Policy(
        id=policy_id(TILL, resource, Effect.DENY),
        user=TILL,
        resource=resource,
        actions=parse_actions(["Pub"]),
        effect=Effect.DENY,
    )
    return AuthCreateAcl(subject=f"User:{TILL}"), encode_policies(TILL, [policy])


def changed(change: UserChange) -> tuple[Request, bytes]:
    return AuthUpdateUser(username=TILL), encode_user_change(change)


LOST: dict[str, Callable[[], tuple[Request, bytes]]] = {
    "another secret": lambda: changed(UserChange(secret="a secret of today")),
    "disabled": lambda: changed(UserChange(enabled=False)),
    "without roles": lambda: changed(UserChange(roles=())),
    "denied": denied,
    "deleted": lambda: (AuthDeleteUser(username=TILL), b""),
}


@pytest.mark.fault
@pytest.mark.parametrize("lost", LOST.values(), ids=LOST)
async def test_a_captured_request_has_the_rights_that_its_user_has_now(
    secured: Attacked, lost: Callable[[], tuple[Request, bytes]]
) -> None:
    frame = captured()
    for _ in range(2):
        [reply] = await secured.answers(frame)
        assert reply.code == Code.SUCCESS, reply.remark
    stored = secured.stored()
    taken = await secured.request(*lost(), ROOT)
    assert taken.code == Code.SUCCESS, taken.remark
    for _ in range(2):
        [reply] = await secured.answers(frame)
        assert "AclException" in (reply.remark or "")
    assert secured.stored() == stored
    await secured.serves(ROOT)


class Tap:
    """Passes connections on, and keeps what clients send."""

    def __init__(self, address: str) -> None:
        self.heard = bytearray()
        self._host, _, port = address.rpartition(":")
        self._port = int(port)

    async def pass_on(self, near: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
        """Handle one connection."""
        far, there = await asyncio.open_connection(self._host, self._port)

        async def copy(reader: asyncio.StreamReader, to: asyncio.StreamWriter, keep: bool) -> None:
            while data := await reader.read(1 << 16):
                if keep:
                    self.heard += data
                to.write(data)
            to.close()

        await asyncio.gather(copy(near, there, True), copy(far, back, False))


@pytest.mark.fault
async def test_over_tls_captured_bytes_are_worth_nothing(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "keys", "tests")
    certificate, key = authority.pair("server")
    context = ssl.create_default_context(cafile=str(authority.path))
    tls = {"tls_mode": TlsMode.PERMISSIVE, "tls_cert_path": certificate, "tls_key_path": key}
    async with broker_with_users(tmp_path, **tls) as broker:
        tap = Tap(broker.address("tcp"))
        async with await asyncio.start_server(tap.pass_on, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", port, ssl=context, server_hostname="localhost"
            )
            writer.write(captured())
            [reply] = FrameReader().feed(await reader.read(1 << 16))
            assert reply.code == Code.SUCCESS, reply.remark
            writer.close()
        assert broker.stored() == 1
        assert captured()[:40] not in tap.heard
        for _ in range(3):
            reader, writer = await broker.connect()
            writer.write(bytes(tap.heard))
            with suppress(ConnectionError):  # it was closed with bytes that nobody has read
                while await reader.read(1 << 16):
                    continue
        assert broker.stored() == 1
        await broker.serves(TILL)
