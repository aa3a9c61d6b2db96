"""A RocketMQ client's conversation with name server and broker, frame by frame, over real sockets.

The rules R1 to R10 are those that only real clients reveal; the conversations are theirs.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from kourou.broker.broker_service import BrokerService
from kourou.broker.config import BrokerSettings
from kourou.errors import Code
from kourou.model.topic import TopicConfig
from kourou.protocol.bodies.registration_body import BrokerRegistration, encode_registration
from kourou.protocol.bodies.route_bodies import decode_topic_route
from kourou.protocol.messages.namesrv import GetRouteInfoByTopic, RegisterBroker, UnregisterBroker
from kourou.protocol.messages.sends import SendMessage
from kourou.protocol.record.message_record import decode_record
from kourou.protocol.wire.remoting import HeaderType, Language, RemotingCommand
from kourou.transport.remoting_client import RemotingConnection
from kourou.transport.zmq_client import ZmqConnection
from kourou_namesrv.app import NamesrvService
from kourou_namesrv.config import NamesrvSettings

PATIENT_MS = 20_000
GROUP = "group-a"
UPDATE_BROKER_CONFIG, GET_BROKER_CONFIG = 25, 26


def unexpected(error: BaseException) -> None:
    raise AssertionError from error


@dataclass
class Site:
    """One name server, one broker, and a RocketMQ client's connections to them."""

    broker: BrokerService
    listening: dict[str, str]
    names: dict[str, str]
    to_names: RemotingConnection
    to_broker: RemotingConnection
    asked: list[RemotingCommand]
    header_type: HeaderType = HeaderType.JSON

    async def names_say(self, code: int, version: int = 409, **fields: object) -> RemotingCommand:
        return await self._say(self.to_names, code, b"", version, fields)

    async def say(self, code: int, body: bytes = b"", **fields: object) -> RemotingCommand:
        return await self._say(self.to_broker, code, body, 409, fields)

    async def _say(
        self,
        to: RemotingConnection,
        code: int,
        body: bytes,
        version: int,
        fields: dict[str, object],
    ) -> RemotingCommand:
        texts = {name: str(value) for name, value in fields.items()}
        command = RemotingCommand(
            code, Language.JAVA, version, ext_fields=texts, header_type=self.header_type
        )
        return await to.exchange(command, (body,), timeout_ms=PATIENT_MS)

    async def send(self, body: bytes, topic: str = "orders", **letters: object) -> RemotingCommand:
        now_ms = int(time.time() * 1_000)
        given = {"a": "p", "b": topic, "c": "TBW102", "d": 4, "e": 0, "f": 0, "g": now_ms, "h": 0}
        return await self.say(310, body, **{**given, **letters})

    async def beat(self, client_id: str = "10.0.0.1@7", topic: str = "orders") -> RemotingCommand:
        """As a C++ client writes it: enums as numbers, a version as text, no sets, a newline."""
        said = {
            "clientID": client_id,
            "producerDataSet": [{"groupName": "CLIENT_INNER_PRODUCER"}],
            "consumerDataSet": [
                {
                    "groupName": GROUP,
                    "consumeType": 1,
                    "messageModel": 1,
                    "consumeFromWhere": 0,
                    "unitMode": "0",
                    "subscriptionDataSet": [
                        {"topic": topic, "subString": "*", "subVersion": "1700000000000"}
                    ],
                }
            ],
        }
        return await self.say(34, json.dumps(said).encode() + b"\n")

    async def pull(self, offset: int, **fields: object) -> RemotingCommand:
        given = {
            "consumerGroup": GROUP,
            "topic": "orders",
            "queueId": 0,
            "queueOffset": offset,
            "maxMsgNums": 32,
            "sysFlag": 0,
            "commitOffset": 0,
            "suspendTimeoutMillis": 0,
            "subVersion": 1_700_000_000_000,
        }
        return await self.say(11, **{**given, **fields})


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    names = NamesrvService(
        NamesrvSettings(
            listen_port=0, admin_enabled=False, kv_config_path=tmp_path / "names" / "kv.json"
        )
    )
    await names.recover(unexpected)
    told = dict(await names.serve())
    broker = BrokerService(
        BrokerSettings(
            listen_port=0,
            admin_enabled=False,
            broker_name="broker-a",
            store_root=tmp_path / "store",
            segment_size_bytes=1 << 20,
            namesrv_addr=told["zmq"],
        )
    )
    await broker.recover(unexpected)
    listening = dict(await broker.serve())
    asked: list[RemotingCommand] = []
    made = Site(
        broker,
        listening,
        told,
        RemotingConnection(told["tcp"]),
        RemotingConnection(listening["tcp"], on_request=asked.append),
        asked,
    )
    yield made
    made.to_names.close()
    made.to_broker.close()
    for service in (broker, names):
        await service.drain()
        await service.stop()


# -- routes


@pytest.mark.feature("F041")
async def test_routes_name_the_address_that_the_asker_can_dial(site: Site) -> None:
    """R7: what stands in a route is dialled literally. TCP clients never see a ZeroMQ address."""
    await site.send(b"x")
    while (over_tcp := await site.names_say(105, topic="orders")).code:
        continue  # the registration is on its way
    (broker,) = decode_topic_route(bytes(over_tcp.body)).broker_datas
    assert broker.broker_addrs == {0: site.listening["tcp"]}
    zmq_port = site.listening["zmq"].rpartition(":")[2]
    assert zmq_port.encode() not in bytes(over_tcp.body)
    connection = ZmqConnection(site.names["zmq"])
    over_zmq = await connection.request(GetRouteInfoByTopic(topic="orders"), timeout_ms=PATIENT_MS)
    connection.close()
    (broker,) = decode_topic_route(bytes(over_zmq.body[0])).broker_datas
    assert broker.broker_addrs == {0: site.listening["zmq"].removeprefix("tcp://")}


@pytest.mark.parametrize(
    ("version", "fields", "strict"),
    [(409, {}, True), (401, {}, True), (399, {}, False),
     (63, {"acceptStandardJsonOnly": "true"}, True), (0, {}, False)],
)  # fmt: skip
async def test_older_clients_get_the_routes_they_have_always_got(
    site: Site, version: int, fields: dict[str, str], strict: bool
) -> None:
    await site.send(b"x")
    while (route := await site.names_say(105, version, topic="orders", **fields)).code:
        continue  # the registration is on its way
    assert (b'{"0":"' in bytes(route.body), b'{0:"' in bytes(route.body)) == (strict, not strict)
    (broker,) = decode_topic_route(bytes(route.body)).broker_datas
    assert broker.broker_addrs == {0: site.listening["tcp"]}


async def test_a_topic_without_a_route(site: Site) -> None:
    assert (await site.names_say(105, topic="nothing")).code == Code.TOPIC_NOT_EXIST


async def test_a_broker_of_rocketmqs_own_registers(site: Site) -> None:
    """Over TCP, with a compressed body or a plain one; gone when its connection is."""
    for compressed in (False, True):
        theirs = RemotingConnection(site.names["tcp"], language=Language.JAVA)
        registration = BrokerRegistration((TopicConfig("theirs", 3, 3),))
        request = RegisterBroker(
            broker_name="broker-j",
            broker_addr="10.0.0.9:10911",
            cluster_name="J",
            ha_server_addr="10.0.0.9:10912",
            broker_id=0,
            compressed=compressed,
        )
        body = encode_registration(registration, compressed=compressed)
        reply = await theirs.request(request, body=(body,), timeout_ms=PATIENT_MS)
        assert reply.code == 0
        route = decode_topic_route(bytes((await site.names_say(105, topic="theirs")).body))
        assert [broker.broker_addrs for broker in route.broker_datas] == [{0: "10.0.0.9:10911"}]
        if compressed:
            leave = UnregisterBroker(
                broker_name="broker-j", broker_addr="10.0.0.9:10911", cluster_name="J", broker_id=0
            )
            assert (await theirs.request(leave, timeout_ms=PATIENT_MS)).code == 0
        theirs.close()
        while (await site.names_say(105, topic="theirs")).code == 0:
            continue
    assert (await site.names_say(106)).code == 0


async def test_our_broker_registers_with_a_name_server_over_tcp(site: Site, tmp_path: Path) -> None:
    """As with a name server of RocketMQ's own, which knows of no listeners."""
    broker = BrokerService(
        BrokerSettings(
            listen_port=0,
            admin_enabled=False,
            broker_name="broker-b",
            store_root=tmp_path / "store-b",
            segment_size_bytes=1 << 20,
            namesrv_addr=f"remoting://{site.names['tcp']}",
        )
    )
    await broker.recover(unexpected)
    listening = await broker.serve()
    cluster = json.loads(bytes((await site.names_say(106)).body))
    assert cluster["brokerAddrTable"]["broker-b"]["brokerAddrs"] == {"0": listening["tcp"]}
    await broker.drain()
    assert b"broker-b" not in bytes((await site.names_say(106)).body)
    await broker.stop()


# -- sending


@pytest.mark.feature("F037", "F038", "F039")
@pytest.mark.parametrize("header_type", HeaderType)
async def test_a_message_there_and_back_again(site: Site, header_type: HeaderType) -> None:
    site.header_type = header_type
    sent = await site.send(b"hello", i="KEYS\x01k\x02TAGS\x01t\x02")
    assert sent.code == 0
    fields = sent.ext_fields or {}
    host, _, port = site.listening["tcp"].partition(":")
    assert fields["msgId"].startswith(
        bytes(map(int, host.split("."))).hex().upper() + f"{int(port):08X}"
    ), "tools dial the address in the id to look at the message"
    assert {"MSG_REGION", "TRACE_ON", "queueId", "queueOffset"} <= set(fields)
    await site.beat()
    pulled = await site.pull(0)
    assert (pulled.code, pulled.remark) == (0, "FOUND")
    assert (pulled.ext_fields or {})["nextBeginOffset"] == "1"
    found = decode_record(bytes(pulled.body))
    assert (found.body, found.keys) == (b"hello", ("k",))
    viewed = await site.say(33, offset=int(fields["msgId"][16:], 16))
    assert bytes(viewed.body) == bytes(pulled.body)


async def test_a_cpp_clients_batch(site: Site) -> None:
    """R5: its batch goes out as code 10 with batch "1"; each message is stored by itself."""

    def item(body: bytes) -> bytes:
        properties = b"KEYS\x01" + body
        size = 4 + 4 + 4 + 4 + 4 + len(body) + 2 + len(properties)
        return b"".join((
            size.to_bytes(4, "big"), bytes(4), bytes(4), bytes(4), len(body).to_bytes(4, "big"),
            body, len(properties).to_bytes(2, "big"), properties,
        ))  # fmt: skip

    fields = {
        "producerGroup": "p", "topic": "orders", "defaultTopic": "TBW102",
        "defaultTopicQueueNums": "4", "queueId": "1", "sysFlag": "0", "flag": "0",
        "bornTimestamp": "1", "batch": "1", "AccessKey": "", "Signature": "s", "OnsChannel": "A",
    }  # fmt: skip
    sent = await site.say(10, item(b"one") + item(b"two"), **fields)
    assert sent.code == 0
    assert (sent.ext_fields or {})["msgId"].count(",") == 1
    await site.beat()
    pulled = await site.pull(0, queueId=1)
    assert (pulled.ext_fields or {})["maxOffset"] == "2"


async def test_a_refused_send_has_the_fields_too(site: Site) -> None:
    refused = await site.send(b"x", topic="not a topic")
    assert refused.code == Code.SYSTEM_ERROR
    assert refused.ext_fields == {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}


# -- consuming


async def test_a_heartbeat_makes_the_retry_topic_and_tells_the_version(site: Site) -> None:
    """R10, and the version that Java clients want for SQL filters."""
    beaten = await site.beat()
    assert (beaten.code, beaten.version >= 232) == (0, True)
    while (await site.names_say(105, topic=f"%RETRY%{GROUP}")).code:
        continue  # the registration is on its way
    members = await site.say(38, consumerGroup=GROUP)
    assert json.loads(bytes(members.body)) == {"consumerIdList": ["10.0.0.1@7"]}
    (notice,) = site.asked
    assert (notice.code, notice.is_oneway, notice.ext_fields) == (
        40,
        True,
        {"consumerGroup": GROUP},
    )
    connected = await site.say(203, consumerGroup=GROUP)
    (connection,) = json.loads(bytes(connected.body))["connectionSet"]
    assert (connection["language"], connection["version"]) == ("JAVA", 409)


async def test_a_new_group_begins_at_the_first_message_of_a_young_queue(site: Site) -> None:
    """R3: code 22 would make both 4.x clients begin at the end."""
    await site.send(b"x")
    asked = await site.say(14, consumerGroup=GROUP, topic="orders", queueId=0)
    assert (asked.code, asked.ext_fields) == (0, {"offset": "0"})


@pytest.mark.feature("F043")
async def test_whoever_disconnects_is_no_member_any_more(site: Site) -> None:
    await site.beat()
    site.to_broker.close()
    site.to_broker = RemotingConnection(site.listening["tcp"])
    while (await site.say(38, consumerGroup=GROUP)).code == 0:
        continue


async def test_an_empty_pull_has_its_offsets_and_a_held_one_is_woken(site: Site) -> None:
    """R4: suspended only where the bit says so; the commit goes with its bit."""
    await site.send(b"first")
    await site.beat()
    empty = await site.pull(1)
    assert (empty.code, (empty.ext_fields or {})["nextBeginOffset"]) == (19, "1")
    assert set(empty.ext_fields or {}) == {
        "suggestWhichBrokerId", "nextBeginOffset", "minOffset", "maxOffset",
    }  # fmt: skip
    held = asyncio.ensure_future(
        site.pull(1, sysFlag=3, suspendTimeoutMillis=15_000, commitOffset=1)
    )
    while (await site.say(14, consumerGroup=GROUP, topic="orders", queueId=0)).ext_fields != {
        "offset": "1"
    }:
        continue
    assert not held.done()
    await site.send(b"second")
    assert decode_record(bytes((await held).body)).body == b"second"


async def test_a_pull_may_bring_its_subscription(site: Site) -> None:
    await site.send(b"x", i="TAGS\x01a\x02")
    found = await site.pull(0, sysFlag=4, subscription="a || b", expressionType="TAG")
    none = await site.pull(0, sysFlag=4, subscription="c")
    assert (found.code, none.code) == (0, Code.PULL_RETRY_IMMEDIATELY)
    unknown = await site.pull(0)
    assert unknown.code == Code.SUBSCRIPTION_NOT_EXIST, "without one, a heartbeat comes first"


async def test_both_carriers_are_one_broker(site: Site) -> None:
    """What one sent the other reads, and offsets go on."""
    await site.send(b"over tcp")
    connection = ZmqConnection(site.listening["zmq"])
    request = SendMessage(
        producer_group="p", topic="orders", queue_id=0, born_timestamp=1, default_topic="TBW102"
    )
    reply = await connection.request(request, body=(b"over zmq",), timeout_ms=PATIENT_MS)
    connection.close()
    assert reply.header is not None
    assert (await site.send(b"again")).ext_fields["queueOffset"] == "2"  # type: ignore[index]  # there
    await site.beat()
    assert (await site.pull(0)).ext_fields["maxOffset"] == "3"  # type: ignore[index]  # there


async def test_switched_off_nothing_listens(tmp_path: Path) -> None:
    broker = BrokerService(
        BrokerSettings(
            listen_port=0,
            admin_enabled=False,
            store_root=tmp_path / "s",
            tcp_enabled=False,
            replication_enabled=False,
        )
    )
    await broker.recover(unexpected)
    assert set(await broker.serve()) == {"zmq"}
    await broker.drain()
    await broker.stop()


async def test_a_running_broker_takes_no_promise_that_it_does_not_keep(site: Site) -> None:
    """As `mqadmin updateBrokerConfig` asks, over TCP; nothing of the request takes effect."""
    for entry in (b"aclEnable=true", b"useTLS=true", b"tls.server.mode=enforcing"):
        answer = await site.say(UPDATE_BROKER_CONFIG, b"traceOn=false\n" + entry + b"\n")
        assert answer.code == Code.SYSTEM_ERROR
        assert f"{entry.decode()} is refused: Kourou does not" in (answer.remark or "")
    nothing = b"aclEnable=false\nuseTLS=false\n"
    assert (await site.say(UPDATE_BROKER_CONFIG, nothing)).code == Code.SUCCESS
    settings = await site.say(GET_BROKER_CONFIG)
    assert b"traceOn=true" in bytes(settings.body).splitlines()
