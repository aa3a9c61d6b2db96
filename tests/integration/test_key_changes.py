"""The keys of a cluster and of a client change while the client sends and consumes.

A name server and a broker as processes that have one pair of CURVE keys, and the users of a broker.
Every send is tried once, so a refusal or a lost connection would fail it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import pytest

from kourou import Client, ClientSettings, ConsumeFromWhere, ConsumerSettings, ProducerSettings
from kourou.errors import Rejected
from kourou.model.message import SendStatus
from kourou.service.local_cluster import ClusterSettings, LocalCluster
from kourou.service.processes import Child
from kourou.transport.curve_keys import KeyPair, make_pair, read_pair, write_public

SENDERS = 4
LOG_LINES = 100_000
TOPIC, PRODUCERS, CONSUMERS = "orders", "tills", "kitchens"
HOST = {"server": ("127.0.0.1",), "ops": (), "app": ()}
USERS = """\
[ops]
roles = ["administrator"]
curve-key-files = ["public/ops.key"]

[app]
roles = ["writer", "operator"]
curve-key-files = ["public/app.key"]
"""

pytestmark = pytest.mark.timeout(600)  # processes, and much to do for them


class Suite:
    """The cluster, and what an operator does with files of keys."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.pairs: dict[str, KeyPair] = {}
        for name in HOST:
            self.pairs[name] = read_pair(make_pair(folder / "keys" / name, name)[1])
            self.publish(name, self.pairs[name])
        (folder / "users.toml").write_text(USERS)
        public = folder / "public"
        keys = {
            "curveKeyFile": str(self.secret("server")),
            "curveClients": str(public),
            "curveServerKey": str(public),
        }
        settings = ClusterSettings(
            namesrv={**keys, "curveMembers": str(public / "server.key")},
            broker={**keys, "initialUsersFile": str(folder / "users.toml")},
            small_segments=True,
        )
        self.cluster = LocalCluster(folder / "cluster", settings)

    def secret(self, name: str) -> Path:
        return self.folder / "keys" / name / f"{name}.key_secret"

    def publish(self, name: str, *pairs: KeyPair) -> None:
        """Let everybody know these public keys of that name."""
        folder = self.folder / "public"
        aside = folder / f"{name}.next"
        texts: list[str] = []
        for pair in pairs:
            write_public(aside, pair.public, HOST[name])
            texts.append(aside.read_text())
        aside.write_text("".join(texts))
        aside.replace(folder / f"{name}.key")

    def make_next(self, name: str) -> tuple[KeyPair, KeyPair]:
        """Make the next pair of that name and publish it, too; returns the former one and it."""
        former = self.pairs[name]
        self.pairs[name] = read_pair(make_pair(self.folder / "next" / name, name)[1])
        self.publish(name, former, self.pairs[name])
        return former, self.pairs[name]

    def use_next(self, name: str) -> None:
        (self.folder / "next" / name / f"{name}.key_secret").replace(self.secret(name))

    def client(self, name: str) -> Client:
        settings = ClientSettings(
            curve_key_file=str(self.secret(name)),
            curve_server_key=str(self.folder / "public"),
            poll_name_server_interval_ms=200,
        )
        once = ProducerSettings(
            producer_group=PRODUCERS if name == "app" else name,
            send_timeout_ms=60_000,
            retry_times_when_send_failed=0,
        )
        return Client(self.cluster.address, settings=settings, producer=once)


@pytest.fixture
def suite(tmp_path: Path) -> Iterator[Suite]:
    made = Suite(tmp_path)
    try:
        yield made
    finally:
        made.cluster.stop()


@dataclass
class Traffic:
    """What was sent, and what was consumed of it."""

    client: Client
    numbers: Iterator[int] = field(default_factory=count)
    sent: set[bytes] = field(default_factory=set)
    consumed: set[bytes] = field(default_factory=set)
    moved: asyncio.Event = field(default_factory=asyncio.Event)
    ending: bool = False

    async def send(self) -> None:
        while not self.ending:
            body = b"%d" % next(self.numbers)
            result = await self.client.send(TOPIC, body)
            assert result.status is SendStatus.SEND_OK
            self.sent.add(body)
            self.moved.set()

    async def consume(self) -> None:
        settings = ConsumerSettings(
            consumer_group=CONSUMERS,
            consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        )
        async with self.client.subscribe(TOPIC, settings=settings) as messages:
            async for message in messages:
                self.consumed.add(bytes(message.body))
                self.moved.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Check again whenever something was sent or consumed."""
        while not condition():
            self.moved.clear()
            await self.moved.wait()

    async def goes_on(self) -> None:
        """Wait for as many sends and messages more as make every connection and task busy."""
        sent, consumed = len(self.sent) + 10 * SENDERS, len(self.consumed) + 10 * SENDERS
        await self.until(lambda: len(self.sent) >= sent and len(self.consumed) >= consumed)


@asynccontextmanager
async def traffic(suite: Suite) -> AsyncIterator[Traffic]:
    async with suite.client("app") as client, asyncio.TaskGroup() as group:
        made = Traffic(client)
        senders = [group.create_task(made.send()) for _ in range(SENDERS)]
        consumer = group.create_task(made.consume())
        try:
            await made.goes_on()
            yield made
            made.ending = True
            await asyncio.wait(senders)
            await made.until(lambda: made.consumed >= made.sent)
        finally:
            for task in (*senders, consumer):
                task.cancel()


async def producers(suite: Suite) -> list[str]:
    """The addresses from which the senders' client is connected."""
    async with suite.client("ops") as ops:
        try:
            found = await ops.admin.groups.producers(PRODUCERS)
        except Rejected:  # its first heartbeat comes a moment after its first message
            return []
        return [one.client_addr for one in found]


async def logged(running: Traffic, child: Child, text: str) -> None:
    await running.until(lambda: text in child.log_tail(LOG_LINES))


async def test_keys_change_while_messages_are_sent(
    suite: Suite, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "kourou.transport")
    namesrv, broker = suite.cluster.namesrv, suite.cluster.brokers[0]
    async with suite.client("ops") as ops:
        await ops.admin.topics.create(TOPIC, queues=2)
    async with traffic(suite) as running:
        while not (connected := await producers(suite)):
            await running.goes_on()

        # The servers' pair: both keys are known, the servers change, the former key is forgotten.
        _, following = suite.make_next("server")
        suite.use_next("server")
        for child in (namesrv, broker):
            await logged(running, child, "curve-key-changed")
        await logged(running, broker, "connection-key-changed")  # to the name server
        await running.goes_on()
        assert await producers(suite) == connected, "open connections stay"
        suite.publish("server", following)
        await running.goes_on()
        async with suite.client("ops") as ops:  # by the new key, at both
            await ops.admin.topics.create("later", queues=1)
        assert "connection-key-changed" not in caplog.text

        # The client's pair: its user has both keys, the client changes, the former key goes.
        former, following = suite.make_next("app")
        async with suite.client("ops") as ops:
            await ops.admin.users.set("app", curve_keys=[former.public, following.public])
        suite.use_next("app")
        while len(now := await producers(suite)) != 1 or now == connected:
            await running.goes_on()
        await running.until(lambda: caplog.text.count("has the changed key pair") == 2)
        suite.publish("app", following)
        async with suite.client("ops") as ops:
            await ops.admin.users.set("app", curve_keys=[following.public])
        await running.goes_on()

    async with suite.client("ops") as ops:
        for name, status in (await ops.admin.users.status()).items():
            assert (status.refused, status.effective) == (0, "enforce"), (name, status.refusals)
        stored = (await ops.admin.topics.stats(TOPIC)).values()
        assert sum(one.max_offset - one.min_offset for one in stored) == len(running.sent)
    assert running.consumed == running.sent
    assert "cannot talk to" not in caplog.text
    for pair in suite.pairs.values():
        for child in (namesrv, broker):
            assert pair.secret not in child.log_tail(LOG_LINES)
