"""The name server as a process: requests over ZeroMQ, brokers that come and go, restarts."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path

import pytest

from kourou.errors import Code
from kourou.model.topic import DataVersion, TopicConfig
from kourou.protocol.bodies.registration_body import BrokerRegistration, encode_registration
from kourou.protocol.bodies.route_bodies import (
    decode_kv_table,
    decode_topic_list,
    decode_topic_route,
)
from kourou.protocol.messages import namesrv as ask
from kourou.protocol.request import Request
from kourou.transport.zmq_client import WireReply, ZmqConnection

TIMEOUT_MS = 20_000


class Process:
    """A name server that was waited for; `zmq` and `admin` are where it listens."""

    def __init__(self, folder: Path, settings: Sequence[str] = (), port: str | None = "0") -> None:
        self.folder = folder
        self.kv_path = folder / "kv" / "kvConfig.json"
        ready = folder / "ready.json"
        ready.unlink(missing_ok=True)
        ports = [] if port is None else [f"listenPort={port}"]
        everything = [*ports, f"kvConfigPath={self.kv_path}", *settings]
        arguments = [part for each in everything for part in ("--set", each)]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "kourou_namesrv", *arguments, "--ready-file", str(ready)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={key: value for key, value in os.environ.items() if key != "NAMESRV_ADDR"},
        )
        assert self.process.stdout is not None
        self.greeting = self.process.stdout.readline()
        if ready.exists():
            facts = json.loads(ready.read_text())
            self.zmq: str = facts["zmq"].removeprefix("tcp://")
            self.admin: str = facts["admin"]

    def end(self, how: int = signal.SIGTERM) -> tuple[int, str]:
        """Exit code and stderr."""
        self.process.send_signal(how)
        return self.wait()

    def wait(self) -> tuple[int, str]:
        errors = self.process.communicate()[1]
        return self.process.returncode, errors


Start = Callable[..., Process]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    started: list[Process] = []

    def begin(*settings: str, port: str | None = "0") -> Process:
        process = Process(tmp_path, settings, port)
        started.append(process)
        return process

    yield begin
    for process in started:
        if process.process.poll() is None:
            process.process.kill()
        process.process.communicate()


class Talk:
    """Requests over connections that are closed in the end."""

    def __init__(self) -> None:
        self.opened: list[ZmqConnection] = []

    def connect(self, process: Process) -> ZmqConnection:
        connection = ZmqConnection(process.zmq)
        self.opened.append(connection)
        return connection

    async def ask(
        self, connection: ZmqConnection, request: Request, body: bytes = b""
    ) -> WireReply:
        return await connection.request(
            request, body=(body,) if body else (), timeout_ms=TIMEOUT_MS
        )

    async def register(
        self, connection: ZmqConnection, topics: Sequence[str] = ("T",), name: str = "broker-a"
    ) -> WireReply:
        request = ask.RegisterBroker(
            broker_name=name,
            broker_addr=f"{name}:10911",
            cluster_name="C",
            broker_id=0,
            listeners={"zmq:internal": f"{name}:20911"},
        )
        table = tuple(TopicConfig(topic) for topic in topics)
        body = encode_registration(BrokerRegistration(table, DataVersion(1, 1)))
        return await self.ask(connection, request, body)

    async def topics(self, connection: ZmqConnection) -> list[str]:
        reply = await self.ask(connection, ask.GetAllTopicListFromNamesrv())
        return decode_topic_list(b"".join(map(bytes, reply.body)))[0]


@pytest.fixture
async def talk() -> AsyncIterator[Talk]:
    talking = Talk()
    yield talking
    for connection in talking.opened:
        connection.close()


@pytest.mark.feature("F024", "F036", "F361")
async def test_a_broker_registers_and_a_client_finds_it(start: Start, talk: Talk) -> None:
    namesrv = start()
    assert namesrv.greeting.startswith("kourou namesrv is ready: zmq tcp://127.0.0.1:")
    broker, client = talk.connect(namesrv), talk.connect(namesrv)
    assert (await talk.register(broker)).code == Code.SUCCESS
    reply = await talk.ask(client, ask.GetRouteInfoByTopic(topic="T"))
    route = decode_topic_route(bytes(reply.body[0]))
    assert route.broker_datas[0].broker_addrs == {0: "broker-a:20911"}
    missing = await talk.ask(client, ask.GetRouteInfoByTopic(topic="nope"))
    assert missing.code == Code.TOPIC_NOT_EXIST


@pytest.mark.feature("F035")
@pytest.mark.fault
async def test_a_dead_connection_clears_what_it_registered(start: Start, talk: Talk) -> None:
    namesrv = start()
    staying, going = talk.connect(namesrv), talk.connect(namesrv)
    await talk.register(staying, ["Kept"], "broker-a")
    await talk.register(going, ["Gone"], "broker-b")
    assert await talk.topics(staying) == ["Kept", "Gone"]
    going.close()
    while "Gone" in await talk.topics(staying):  # noqa: ASYNC110 - another process
        await asyncio.sleep(0)
    assert await talk.topics(staying) == ["Kept"]


@pytest.mark.feature("F025")
async def test_a_silent_broker_is_dropped(start: Start, talk: Talk) -> None:
    namesrv = start("brokerExpiryMillis=100", "scanNotActiveBrokerInterval=10")
    broker = talk.connect(namesrv)
    await talk.register(broker)
    while await talk.topics(broker):  # noqa: ASYNC110 - another process
        await asyncio.sleep(0)
    code, log = await asyncio.to_thread(namesrv.end)
    assert code == 0
    assert "no heartbeat for too long" in log


@pytest.mark.feature("F022", "F380")
async def test_name_servers_share_nothing(start: Start, talk: Talk, tmp_path: Path) -> None:
    first = start()
    (tmp_path / "second").mkdir()
    second = Process(tmp_path / "second")
    try:
        await talk.register(talk.connect(first))
        assert await talk.topics(talk.connect(first)) == ["T"]
        assert await talk.topics(talk.connect(second)) == []
    finally:
        second.end()


@pytest.mark.feature("F022", "F380")
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
async def test_a_restart_leaves_no_route(start: Start, talk: Talk, how: int) -> None:
    """The brokers bring the routes back, which no file has."""
    namesrv = start()
    await talk.register(talk.connect(namesrv))
    await asyncio.to_thread(namesrv.end, how)
    connection = talk.connect(start())
    assert await talk.topics(connection) == []
    await talk.register(connection)
    assert await talk.topics(connection) == ["T"]


@pytest.mark.feature("F023")
@pytest.mark.fault
async def test_key_values_survive_a_kill(start: Start, talk: Talk) -> None:
    namesrv = start()
    connection = talk.connect(namesrv)
    changes = [
        ask.PutKvConfig(namespace="ORDER_TOPIC_CONFIG", key="T", value="broker-a:4"),
        ask.PutKvConfig(namespace="N", key="a", value="1"),
        ask.PutKvConfig(namespace="N", key="a", value="2"),
        ask.DeleteKvConfig(namespace="N", key="never"),
        ask.PutKvConfig(namespace="N", key="b", value="3"),
        ask.DeleteKvConfig(namespace="N", key="b"),
    ]
    replies = await asyncio.gather(*(talk.ask(connection, change) for change in changes))
    assert [reply.code for reply in replies] == [Code.SUCCESS] * 6
    assert json.loads(namesrv.kv_path.read_bytes()) == {
        "configTable": {"ORDER_TOPIC_CONFIG": {"T": "broker-a:4"}, "N": {"a": "2"}}
    }
    await asyncio.to_thread(namesrv.end, signal.SIGKILL)
    again = talk.connect(start())
    reply = await talk.ask(again, ask.GetKvConfig(namespace="N", key="a"))
    assert reply.header == ask.GetKvConfigResponse(value="2")
    gone = await talk.ask(again, ask.GetKvConfig(namespace="N", key="b"))
    assert gone.code == Code.QUERY_NOT_FOUND
    registered = await talk.register(again)
    assert decode_kv_table(bytes(registered.body[0])) == {"T": "broker-a:4"}


async def test_what_it_cannot_do_it_says(start: Start, talk: Talk) -> None:
    connection = talk.connect(start())

    class Unknown(Request):
        code = 31_999

    class Heartbeat(Request):
        code = 34

    with pytest.raises(KeyError):  # our own client has no such request; the server must survive it
        await talk.ask(connection, Unknown())
    reply = await talk.ask(connection, Heartbeat())
    assert reply.code == Code.REQUEST_CODE_NOT_SUPPORTED
    setting = await talk.ask(connection, ask.UpdateNamesrvConfig(), b"kvConfigPath=/etc/passwd\n")
    assert setting.code == Code.NO_PERMISSION
    settings = await talk.ask(connection, ask.GetNamesrvConfig())
    assert b"listenPort=0\n" in bytes(settings.body[0])


def test_a_damaged_file_is_refused_and_left_alone(start: Start, tmp_path: Path) -> None:
    damaged = tmp_path / "kv" / "kvConfig.json"
    damaged.parent.mkdir()
    damaged.write_text('{"configTable":{"N":')
    code, errors = start().wait()
    assert code == 2
    assert errors.startswith(f"kourou namesrv: {damaged} is damaged: ")
    assert damaged.read_text() == '{"configTable":{"N":'
    assert list(damaged.parent.iterdir()) == [damaged]


def test_its_pages(start: Start) -> None:
    namesrv = start()

    def get(page: str) -> str:
        with urllib.request.urlopen(namesrv.admin + page) as answer:
            return str(answer.read().decode())

    assert get("/healthz") == "ok\n"
    assert get("/readyz") == "ok\n"
    assert "kourou_namesrv_topics" in get("/metrics")
    assert "scanNotActiveBrokerInterval=10000\n" in get("/config")
    assert json.loads(get("/statistics"))["topics"] == 0


@pytest.mark.feature("F030")
def test_without_the_key_it_listens_at_9876(start: Start) -> None:
    """At an address of this machine that no other test uses; else it names the port as taken."""
    host = f"127.9.{os.getpid() % 65_536 >> 8}.{os.getpid() % 256 or 1}"
    namesrv = start(f"bindAddress={host}", "adminPort=0", port=None)
    if not namesrv.greeting:  # another program listens there on all addresses
        assert "9876" in namesrv.wait()[1]
        return
    assert namesrv.zmq == f"{host}:19876"
    for port in (9876, 19876):
        with socket.create_connection((host, port), timeout=30):
            pass


@pytest.mark.feature("F360")
def test_it_stops_on_a_signal(start: Start) -> None:
    for how in (signal.SIGTERM, signal.SIGINT):
        code, errors = start().end(how)
        assert code == 0
        assert "Traceback" not in errors
