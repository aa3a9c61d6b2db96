"""Filter servers as real processes, in their real jail, beside a real broker, asked over the wire.

What their clients make of it is tested in test_filters.py; here the other side of each pull is
looked at, and what is left after SIGKILL, whomever it meets.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import urllib.request
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import msgspec
import pytest

from kourou.errors import Code, KourouError
from kourou.protocol.messages.filter_server import (
    ChangeFilter,
    FilterResponse,
    PutFilter,
    RegisterMessageFilterClass,
)
from kourou.protocol.messages.pulls import PullFlag, PullMessage, PullResponse
from kourou.protocol.messages.sends import SendMessage
from kourou.protocol.record.layout import masked_crc
from kourou.service.local_cluster import ClusterSettings, LocalCluster, zmq_address
from kourou.service.processes import Child
from kourou.transport.remoting_client import RemotingConnection
from kourou.transport.zmq_client import WireReply, ZmqConnection
from kourou_filter_server import zygote_link as layers
from kourou_rigs.records import decode_many

GROUP, NAME, TOPIC = "till", "odd", "numbers"
MESSAGES = 400
BROKER = {"mappedFileSizeCommitLog": str(4 << 20), "defaultTopicQueueNums": "1"}
ODD = b"def match(message, context):\n    return int(message.body) % 2 == 1\n"
EVEN = b"def match(message, context):\n    return int(message.body) % 2 == 0\n"
BREAKS = b"""
def match(message, context):
    if message.body == b"7":
        raise ValueError("seven")
    return True
"""


@pytest.fixture(scope="module")
def jail() -> None:
    if lacking := layers.missing():
        named = ", ".join(f"{layer.name} ({layer.detail})" for layer in lacking)
        pytest.skip(f"needs a kernel layer: {named}")


@pytest.fixture(scope="module")
def cluster(jail: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """A broker with two filter servers, and a topic of one queue with numbers in it."""
    settings = ClusterSettings(
        broker=BROKER,
        filter_servers=2,
        # Who is killed by a test did nothing wrong, however often that is.
        filter_server={"filterStrikes": "1000"},
    )
    with LocalCluster(tmp_path_factory.mktemp("filters"), settings) as cluster:
        asyncio.run(fill(zmq_address(cluster.brokers[0])))
        for child in cluster.filter_servers:
            asyncio.run(until_registered(child))
        yield cluster


def dial(address: str) -> str:
    return address.removeprefix("tcp://")


@asynccontextmanager
async def connected(child: Child) -> AsyncIterator[ZmqConnection]:
    connection = ZmqConnection(dial(zmq_address(child)))
    try:
        yield connection
    finally:
        connection.close()


async def fill(address: str) -> None:
    connection = ZmqConnection(dial(address))
    for number in range(MESSAGES):
        request = SendMessage(
            producer_group="producers",
            topic=TOPIC,
            default_topic="TBW102",
            default_topic_queue_nums=1,
            queue_id=0,
            sys_flag=0,
            born_timestamp=0,
            flag=0,
            properties="",
            reconsume_times=0,
        )
        reply = await connection.request(request, body=(b"%d" % number,), timeout_ms=10_000)
        assert reply.code == Code.SUCCESS, reply
    connection.close()


async def until_registered(child: Child) -> None:
    """Pull until the broker answers: a filter server is ready after 3 s even without its broker."""
    async with connected(child) as server, asyncio.timeout(60):
        while True:
            reply = await server.request(a_pull(0), timeout_ms=10_000)
            if reply.code != Code.SERVICE_NOT_AVAILABLE:
                return


async def put(broker: ZmqConnection, source: bytes, name: str = NAME) -> int:
    request = PutFilter(consumer_group=GROUP, name=name, sha256=hashlib.sha256(source).hexdigest())
    reply = await broker.request(request, body=(source,), timeout_ms=10_000)
    assert reply.code == Code.SUCCESS, reply
    assert isinstance(reply.header, FilterResponse)
    return reply.header.version


def a_pull(offset: int, name: str = NAME, count: int = 32, hold_ms: int = 0) -> PullMessage:
    flags = PullFlag.CLASS_FILTER | PullFlag.SUBSCRIPTION
    if hold_ms:
        flags |= PullFlag.SUSPEND
    return PullMessage(
        consumer_group=GROUP,
        topic=TOPIC,
        queue_id=0,
        queue_offset=offset,
        max_msg_nums=count,
        sys_flag=int(flags),
        suspend_timeout_millis=hold_ms,
        subscription=name,
        expression_type="TAG",
        max_msg_bytes=1 << 20,
    )


def numbers(reply: WireReply) -> list[int]:
    return [int(one.body) for one in decode_many(b"".join(map(bytes, reply.body)))]


def place(reply: WireReply) -> PullResponse:
    assert isinstance(reply.header, PullResponse)
    return reply.header


async def until_version(server: ZmqConnection, version: int, name: str = NAME) -> WireReply:
    """Pull until that version judges: news of it are under way."""
    async with asyncio.timeout(60):
        while True:
            reply = await server.request(a_pull(0, name), timeout_ms=10_000)
            if place(reply).filter_version == version:
                return reply


@pytest.mark.feature("F238", "F239", "F240", "F241", "F242")
async def test_bodies_are_filtered_by_every_filter_server(cluster: LocalCluster) -> None:
    async with connected(cluster.brokers[0]) as broker:
        await put(broker, ODD)
        for child in cluster.filter_servers:
            async with connected(child) as server:
                reply = await server.request(a_pull(0), timeout_ms=10_000)
                assert (reply.code, numbers(reply)) == (Code.SUCCESS, list(range(1, 32, 2)))
                assert place(reply).next_begin_offset == 32
                assert place(reply).max_offset == MESSAGES
                end = await server.request(a_pull(MESSAGES, hold_ms=50), timeout_ms=10_000)
                assert end.code == Code.PULL_NOT_FOUND


async def test_a_new_version_serves_without_a_gap(cluster: LocalCluster) -> None:
    async with (
        connected(cluster.brokers[0]) as broker,
        connected(cluster.filter_servers[0]) as server,
    ):
        first = await put(broker, ODD, "reloaded")
        await until_version(server, first, "reloaded")
        second = await put(broker, EVEN, "reloaded")
        async with asyncio.timeout(60):
            while True:
                reply = await server.request(a_pull(0, "reloaded"), timeout_ms=10_000)
                assert reply.code == Code.SUCCESS
                odd = place(reply).filter_version == first
                assert numbers(reply) == list(range(int(odd), place(reply).next_begin_offset, 2))
                if place(reply).filter_version == second:
                    return


async def test_a_filter_that_breaks_delivers_what_is_before_and_stays(
    cluster: LocalCluster,
) -> None:
    async with (
        connected(cluster.brokers[0]) as broker,
        connected(cluster.filter_servers[0]) as server,
    ):
        await put(broker, BREAKS, "breaks")
        reply = await server.request(a_pull(0, "breaks"), timeout_ms=10_000)
        assert (reply.code, numbers(reply)) == (Code.SUCCESS, list(range(7)))
        failed = await server.request(a_pull(7, "breaks"), timeout_ms=10_000)
        assert (failed.code, failed.body) == (Code.FILTER_FAILED, [])
        assert "seven" in failed.remark
        assert place(failed).next_begin_offset == 7
        policy = ChangeFilter(
            consumer_group=GROUP, name="breaks", action="policy", policy="skip", reason="test"
        )
        assert (await broker.request(policy, timeout_ms=10_000)).code == Code.SUCCESS
        async with asyncio.timeout(60):
            while reply.code != Code.SUCCESS or numbers(reply)[:1] != [8]:
                reply = await server.request(a_pull(7, "breaks"), timeout_ms=10_000)
        assert place(reply).next_begin_offset == 39


def test_its_pages_tell_how_it_is(cluster: LocalCluster) -> None:
    admin = cluster.filter_servers[0].ready["admin"]
    for page in ("readyz", "healthz", "metrics", "config"):
        with urllib.request.urlopen(f"{admin}/{page}") as answer:
            assert answer.status == 200
    with urllib.request.urlopen(f"{admin}/statistics") as answer:
        assert json.load(answer)["broker"] == "broker-a"


def refused(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "kourou_filter_server", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@pytest.mark.feature("F243")
def test_without_its_sandbox_it_stays_on_loopback() -> None:
    done = refused(
        *("--unsafe-no-sandbox", "--insecure-network"), *("--set", "bindAddress=0.0.0.0")
    )
    assert done.returncode == 2
    assert "unsafeNoSandbox" in done.stderr
    assert "Traceback" not in done.stderr


# -- SIGKILL --------------------------------------------------------------------------------------


def children(pid: int) -> list[int]:
    with suppress(OSError):
        return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def kill_somebody(chance: random.Random, cluster: LocalCluster, index: int) -> bool:
    """A worker, the zygote or, less often, the server; True if it must be started again."""
    server = cluster.filter_servers[index]
    zygotes = children(server.pid)
    workers = [worker for zygote in zygotes for worker in children(zygote)]
    (victims,) = chance.choices([workers or zygotes, zygotes, [server.pid]], (2, 2, 1))
    for pid in victims[:1]:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return victims == [server.pid]


async def consume(
    cluster: LocalCluster, got: list[int], progress: asyncio.Event, *, ahead: bool
) -> None:
    """Read all numbers by whichever filter server answers; each answer is looked at.

    Without `ahead` each pull is a question to the broker and a batch of its own, so that whoever is
    killed is needed for the next one.
    """
    offset, index = 0, 0
    while offset < MESSAGES:
        try:
            async with connected(cluster.filter_servers[index]) as server:
                while offset < MESSAGES:
                    pull = a_pull(offset, count=8)
                    if not ahead:
                        pull = msgspec.structs.replace(pull, max_msg_bytes=None)
                    reply = await server.request(pull, timeout_ms=5_000)
                    if reply.code in (Code.SUCCESS, Code.PULL_RETRY_IMMEDIATELY):
                        got += numbers(reply)
                        offset = place(reply).next_begin_offset
                        progress.set()
                    else:
                        assert not reply.body
                        await asyncio.sleep(0)
                        break
        except KourouError:
            pass
        index = 1 - index


@pytest.mark.fault
@pytest.mark.feature("F241", "F243")
async def test_whoever_is_killed_nothing_is_lost_and_nothing_goes_through_unfiltered(
    cluster: LocalCluster, rounds: Callable[[int], int]
) -> None:
    async with connected(cluster.brokers[0]) as broker:
        await put(broker, ODD)
    chance = random.Random(5)
    for number in range(rounds(100)):
        got: list[int] = []
        progress = asyncio.Event()
        consuming = asyncio.create_task(consume(cluster, got, progress, ahead=number % 4 == 0))
        await asyncio.wait([asyncio.create_task(progress.wait()), consuming], timeout=30)
        index = chance.randrange(2)
        if kill_somebody(chance, cluster, index):
            await asyncio.to_thread(cluster.filter_servers[index].wait_for_exit, 60)
            # Not in another thread: a child dies with the thread that started it.
            cluster.start_filter_server(0, index)
        async with asyncio.timeout(60):
            await consuming
        assert got == list(range(1, MESSAGES, 2))


# -- RocketMQ's frames ----------------------------------------------------------------------------


@pytest.mark.feature("F238", "F239")
async def test_a_filter_is_brought_along_and_used_over_tcp(cluster: LocalCluster) -> None:
    """As RocketMQ's old clients do: 302 with the source, then pulls that do not name the filter."""
    group, name = "old-clients", "org.example.Third"
    source = b"def match(message, context):\n    return int(message.body) % 3 == 0\n"
    upload = RegisterMessageFilterClass(
        consumer_group=group, topic=TOPIC, class_name=name, class_crc=masked_crc(source)
    )
    pull = msgspec.structs.replace(
        a_pull(0), consumer_group=group, subscription=None, max_msg_bytes=None
    )
    server = RemotingConnection(cluster.filter_servers[0].ready["tcp"])
    try:
        early = await server.request(pull, timeout_ms=10_000)
        # RocketMQ's clients know no FILTER_FAILED; after an error they ask again, from there
        assert (early.code, list(early.body)) == (Code.SYSTEM_ERROR, [])
        assert "missing" in early.remark
        java = await server.request(
            upload, body=(b"package org.example; public class Third {}",), timeout_ms=10_000
        )
        assert java.code == Code.SYSTEM_ERROR
        assert (await server.request(upload, body=(source,), timeout_ms=10_000)).code == 0
        reply = await server.request(pull, timeout_ms=10_000)
        assert (reply.code, numbers(reply)) == (Code.SUCCESS, list(range(0, 32, 3)))
        assert place(reply).next_begin_offset == 32
    finally:
        server.close()
