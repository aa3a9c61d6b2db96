"""A whole cluster of real processes that know one another by CURVE keys, and strangers.

A name server, a broker with its copy, a filter server, and a Raft group of which one member comes
back with a key that nobody knows. Every one has a pair of its own, and applications may not copy
the log.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kourou import (
    Client,
    ClientSettings,
    ConsumeFromWhere,
    ConsumerSettings,
    Filter,
    ProducerSettings,
)
from kourou.broker.network.log_source import LogSource
from kourou.cli.main import main
from kourou.errors import Code, KourouError, Rejected, Unavailable, UnknownOutcome
from kourou.model.message import SendStatus
from kourou.protocol.messages.namesrv import RegisterBroker
from kourou.protocol.messages.replication import (
    AskVote,
    Attach,
    Attached,
    ChunkAck,
    LogChunk,
    StandNow,
    Vote,
)
from kourou.protocol.request import Request
from kourou.service.local_cluster import zmq_address
from kourou.service.processes import Child, Children, free_port
from kourou.transport.curve_keys import (
    ClientCurve,
    PairFile,
    ServerKeys,
    make_pair,
    read_pair,
    write_public,
)
from kourou.transport.zmq_client import ZmqConnection

MEMBERS = ("broker", "replica", "n0", "n1", "n2")
OTHERS = ("namesrv", "filters", "app")
HOSTS = {"broker": "127.0.0.21", "replica": "127.0.0.22", "filters": "127.0.0.23"} | {
    f"n{number}": f"127.0.0.{31 + number}" for number in range(3)
}
LOG_LINES = 400
PATIENT = ProducerSettings(send_timeout_ms=60_000, retry_times_when_send_failed=20)
LOOK_S = 0.1
UPLOADS = {"filterServerNums": "1"}
COMMON = {"mappedFileSizeCommitLog": str(1 << 20), "tcpEnable": "false", "listenPort": "0"}
KEEP = "def match(message, context):\n    return message.body.startswith(b'keep')\n"


class Secured(Children):
    """The processes; every one is told its own pair and the public keys of all."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.names = ""
        self.begun: dict[str, Child] = {}
        self._started: dict[str, str] = {}
        for name in (*MEMBERS, *OTHERS):
            host = HOSTS.get(name, "127.0.0.1")
            make_pair(folder / "keys" / name, name, [] if name == "app" else [host])
            key = read_pair(self.pair(name)).public
            write_public(folder / "public" / f"{name}.key", key, [host] if name != "app" else [])
            if name in MEMBERS:
                write_public(folder / "members" / f"{name}.key", key)
        make_pair(folder / "keys" / "stranger", "stranger")

    def pair(self, name: str) -> Path:
        return self.folder / "keys" / name / f"{name}.key_secret"

    def begin(self, name: str, module: str, keys: dict[str, str]) -> Child:
        told = {
            "bindAddress": HOSTS.get(name, "127.0.0.1"),
            "adminEnable": "false",
            "curveKeyFile": str(self.pair(name)),
            "curveClients": str(self.folder / "public"),
            "curveServerKey": str(self.folder / "public"),
            **({"storePathRootDir": str(self.folder / f"store-{name}")} if name in MEMBERS else {}),
            **({"curveMembers": str(self.folder / "members")} if name in MEMBERS else {}),
            **keys,
        }
        conf = self.folder / f"{name}.conf"
        conf.write_text("".join(f"{key}={value}\n" for key, value in told.items()))
        self._started[name] = module
        return self.start_again(name)

    def start_again(self, name: str) -> Child:
        asks = ("-n", self.names) if name in MEMBERS else ()
        conf = str(self.folder / f"{name}.conf")
        self.begun[name] = self.start_module(name, self._started[name], "-c", conf, *asks)
        return self.begun[name]

    def curve(self, name: str) -> ClientCurve:
        return ClientCurve(PairFile(self.pair(name)), ServerKeys(self.folder / "public"))

    def client(self, name: str) -> Client:
        settings = ClientSettings(
            curve_key_file=str(self.pair(name)),
            curve_server_key=str(self.folder / "public"),
            poll_name_server_interval_ms=200,
        )
        return Client(self.names, settings=settings, producer=PATIENT)


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("secured")
    with Secured(folder) as made:
        namesrv = made.begin(
            "namesrv",
            "kourou_namesrv",
            {
                "listenPort": "0",
                "tcpEnable": "false",
                "kvConfigPath": str(folder / "kv.json"),
                "curveMembers": str(folder / "members"),
            },
        )
        namesrv.wait_for_ready()
        made.names = zmq_address(namesrv)
        pair = {**COMMON, "brokerName": "pair", "slaveTimeout": "60000"}
        broker = made.begin(
            "broker", "kourou_broker", {**pair, "brokerRole": "SYNC_MASTER", **UPLOADS}
        )
        at = {name: f"{HOSTS[name]}:{free_port()}" for name in MEMBERS[2:]}
        peers = ";".join(f"{name}-{place}" for name, place in at.items())
        group = {**COMMON, "brokerName": "group", "enableDLegerCommitLog": "true"}
        members = [
            made.begin(
                name,
                "kourou_ha_replica",
                {**group, "dLegerPeers": peers, "dLegerSelfId": name},
            )
            for name in MEMBERS[2:]
        ]
        broker.wait_for_ready()
        copy = {"brokerId": "1", "brokerRole": "SLAVE"}
        beside = [
            made.begin("replica", "kourou_ha_replica", {**pair, **copy}),
            made.begin(
                "filters",
                "kourou_filter_server",
                {
                    "listenPort": "0",
                    "tcpEnable": "false",
                    "unsafeNoSandbox": "true",
                    "connectWhichBroker": zmq_address(broker),
                },
            ),
        ]
        for child in (*members, *beside):
            child.wait_for_ready()
        yield made


def said(secured: Secured, name: str, words: str) -> bool:
    """Does its log have that by now? Looks again and again while it lives."""
    child = secured.begun[name]
    while words not in child.log_tail(LOG_LINES):
        if child.wait_for_exit(LOOK_S) is not None:
            return words in child.log_tail(LOG_LINES)
    return True


async def made_when_led(client: Client, topic: str, broker: str) -> None:
    """Make a topic at a group that may have no leader yet; the test's own timeout ends it."""
    while True:
        try:
            return await client.admin.topics.create(topic, broker=broker, queues=1)
        except (Rejected, Unavailable, UnknownOutcome):
            await client.admin.cluster.info()


async def test_applications_send_and_consume_and_copies_are_made(secured: Secured) -> None:
    async with secured.client("app") as client:
        await client.admin.topics.create("orders", broker="pair", queues=1)
        status = None
        while status is not SendStatus.SEND_OK:  # answered when the copy has it, once it follows
            status = (await client.send("orders", b"one of ours")).status
        members = await client.admin.replicas.of("pair")
        assert [one.error for one in members] == [None, None]
        settings = ConsumerSettings(
            consumer_group="readers",
            consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        )
        async with client.subscribe("orders", settings=settings) as messages:
            async for message in messages:
                assert message.body == b"one of ours"
                break


async def test_an_application_cannot_register_a_broker(secured: Secured) -> None:
    forged = RegisterBroker(
        cluster_name="DefaultCluster",
        broker_name="pair",
        broker_addr="127.0.0.1:1",
        broker_id=0,
        compressed=False,
    )
    connection = ZmqConnection(secured.names.removeprefix("tcp://"), curve=secured.curve("app"))
    reply = await connection.request(forged, timeout_ms=20_000)
    connection.close()
    assert reply.code == Code.NO_PERMISSION
    async with secured.client("app") as client:
        info = await client.admin.cluster.info()
        assert "127.0.0.1:1" not in info.brokers["pair"].broker_addrs.values()


async def test_a_filter_server_knows_its_broker_and_its_consumers(secured: Secured) -> None:
    async with secured.client("app") as client:
        await client.admin.topics.create("filtered", broker="pair", queues=1)
        for body in (b"drop 1", b"keep 2", b"drop 3", b"keep 4"):
            await client.send("filtered", body)
        settings = ConsumerSettings(
            consumer_group="keepers",
            consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        )
        got: list[bytes] = []
        wanted = Filter(KEEP, name="kept")
        async with client.subscribe("filtered", wanted, settings=settings) as messages:
            async for message in messages:
                got.append(message.body)
                if len(got) == 2:
                    break
    assert got == [b"keep 2", b"keep 4"]


async def test_a_member_with_another_key_is_refused_and_the_others_lead(secured: Secured) -> None:
    stranger = read_pair(secured.pair("stranger")).public
    async with secured.client("app") as client:
        await made_when_led(client, "elected", "group")  # a new group begins with all of them
        assert secured.begun["n2"].stop() == 0
        conf = secured.folder / "n2.conf"
        told = conf.read_text()
        conf.write_text(told.replace(str(secured.pair("n2")), str(secured.pair("stranger"))))
        secured.start_again("n2")
        sent = await client.send("elected", b"by two of three")
        assert sent.status is SendStatus.SEND_OK
    for name in ("n0", "n1"):
        assert said(secured, name, f"its public key {stranger} is not in curveClients")
        assert secured.begun[name].running
    assert said(secured, "n2", "the server refused this client")
    logs = (secured.folder / "store-n2" / "commitlog").glob("*")
    assert not [path for path in logs if b"by two of three" in path.read_bytes()]


FAR = 1 << 40
"""An epoch that no election of these tests reaches."""

FORGED: tuple[Request, ...] = (
    AskVote(group="group", epoch=FAR, candidate="n1", last_epoch=FAR, end=FAR),
    AskVote(group="group", epoch=FAR, candidate="n1", last_epoch=FAR, end=FAR, pre=True),
    Vote(group="group", epoch=FAR, member="n1", granted=False),
    LogChunk(
        group="group", epoch=FAR, leader="n1", position=0, end=0, previous_epoch=0, data_epoch=0,
        confirmed=0, leader_end=0, first_position=0,
    ),
    ChunkAck(group="group", epoch=FAR, member="n1", accepted=False),
    StandNow(group="group", epoch=FAR, leader="n1", round=1),
    Attach(cluster="DefaultCluster", broker_name="pair", broker_id=1),
    Attached(broker_name="pair", broker_id=0, epoch=FAR, refusal="go away"),
)  # fmt: skip


@pytest.mark.fault
async def test_an_application_cannot_speak_for_a_member(secured: Secured) -> None:
    """Neither where clients connect, nor, with its key, where members do."""
    async with secured.client("app") as client:
        await made_when_led(client, "voted", "group")
        for name in ("n0", "n1", "broker", "replica"):
            ready = secured.begun[name].ready
            clients = ZmqConnection(
                str(ready["zmq"]).removeprefix("tcp://"), curve=secured.curve("app")
            )
            for forged in FORGED:
                reply = await clients.request(forged, timeout_ms=20_000)
                assert reply.code == Code.REQUEST_CODE_NOT_SUPPORTED, (name, forged)
            clients.close()
        for name in ("n0", "n1", "broker"):
            ready, told = secured.begun[name].ready, ""
            while "the server refused this client" not in told:
                members = ZmqConnection(
                    str(ready["replication"]).removeprefix("tcp://"), curve=secured.curve("app")
                )
                with pytest.raises(KourouError) as caught:
                    await members.request(FORGED[0], timeout_ms=300)
                told = str(caught.value)
                members.close()
        sent = await client.send("voted", b"still led by the same rules")
        assert sent.status is SendStatus.SEND_OK
        replicas = await client.admin.replicas.of("group")
        epochs = [one.view.epoch for one in replicas if one.view is not None]
        assert 0 < max(epochs) < FAR


async def test_who_may_send_may_not_copy_the_log(secured: Secured) -> None:
    """curveMembers: applications' keys are not among them."""
    at = str(secured.begun["broker"].ready["replication"]).removeprefix("tcp://")
    async with LogSource(at, "pair", timeout_ms=10_000, curve=secured.curve("replica")) as source:
        assert (await source.beginning())[0].broker_name == "pair"
    async with LogSource(at, "pair", timeout_ms=300, curve=secured.curve("app")) as source:
        told = ""
        while (
            "the server refused this client" not in told
        ):  # a busy machine may not know in time why it waits
            with pytest.raises(KourouError) as caught:
                await source.beginning()
            told = str(caught.value)


@pytest.mark.parametrize("key", ["", "stranger"])
def test_the_command_line_says_what_is_wrong_in_time(
    secured: Secured, key: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("NAMESRV_ADDR", secured.names)
    if key:
        monkeypatch.setenv("KOUROU_CURVE_KEY_FILE", str(secured.pair(key)))
        monkeypatch.setenv("KOUROU_CURVE_SERVER_KEY", str(secured.folder / "public"))
    assert main(("send", "orders", "hello")) != 0
    told = capsys.readouterr().err
    assert (
        "the server refused this client" if key else "set curveKeyFile and curveServerKey"
    ) in told
    assert read_pair(secured.pair("stranger")).secret not in told


def test_the_command_line_finds_its_keys_in_the_environment(
    secured: Secured, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("NAMESRV_ADDR", secured.names)
    monkeypatch.setenv("KOUROU_CURVE_KEY_FILE", str(secured.pair("app")))
    monkeypatch.setenv("KOUROU_CURVE_SERVER_KEY", str(secured.folder / "public"))
    assert main(("admin", "clusterList")) == 0
    assert "pair" in capsys.readouterr().out
