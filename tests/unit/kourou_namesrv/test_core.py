"""Requests and their answers, in one thread and without a socket."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from random import Random
from typing import Any

import pytest

from kourou.authorization.access_table import AccessAggregate, encode_access
from kourou.authorization.request_gate import PublishedGate
from kourou.errors import Code, MetadataUnavailable
from kourou.events.control_events import KeyValueDeleted, KeyValuePut, Recorded
from kourou.model.names import check_topic
from kourou.model.topic import BrokerData, DataVersion, QueueData, TopicConfig
from kourou.protocol.bodies.config_bodies import decode_data_version, encode_data_version
from kourou.protocol.bodies.registration_body import BrokerRegistration, encode_registration
from kourou.protocol.bodies.route_bodies import (
    decode_cluster_info,
    decode_kv_table,
    decode_topic_list,
    decode_topic_route,
)
from kourou.protocol.messages import namesrv as ask
from kourou.protocol.request import Answerer, Request, RequestSpec
from kourou.protocol.table import REQUESTS
from kourou.runtime import Disconnected, Peer, Received, Reply, ReplyTo, Tick
from kourou.settings.registry import SettingsRegistry
from kourou_namesrv import key_values
from kourou_namesrv.config import NamesrvSettings
from kourou_namesrv.core import NamesrvCore
from kourou_namesrv.key_values import KeyValues, KeyValuesWritten, RecordKeyValues
from kourou_rigs.access import ANYBODY, SecuredBroker, Sender, curve_key, secret_box
from kourou_rigs.hostile import hostile_body, hostile_request


class Bench:
    """A core, and what it is told."""

    def __init__(self, **settings: Any) -> None:
        self.settings = NamesrvSettings(**settings)
        registry = SettingsRegistry.of(self.settings)
        self.core = NamesrvCore(self.settings, KeyValues(), registry, "listenPort=9876\n")
        self.now_ms = 1_000
        self._correlations = count(1)

    def received(self, request: Request, body: bytes = b"", peer: int = 1) -> Received:
        to = ReplyTo(Peer(peer, "zmq", ("127.0.0.1", peer)), next(self._correlations))
        return Received(to, request, [body] if body else [], 0)

    def handle(self, *inputs: Any) -> Sequence[Any]:
        return list(self.core.handle(self.now_ms, inputs))

    def ask(self, request: Request, body: bytes = b"", peer: int = 1) -> Reply:
        effects = self.handle(self.received(request, body, peer))
        assert [type(effect) for effect in effects] == [Reply]
        return effects[0]

    def register(self, name: str = "broker-a", peer: int = 1, **rest: Any) -> Reply:
        topics = rest.pop("topics", ("T",))
        configs = [one if isinstance(one, TopicConfig) else TopicConfig(one) for one in topics]
        compressed = rest.pop("compressed", False)
        version = DataVersion(1, rest.pop("version", 1))
        registration = BrokerRegistration(tuple(configs), version)
        body = encode_registration(registration, compressed=compressed)
        fields = {"broker_id": 0, "cluster_name": "C", "broker_addr": f"{name}:1", **rest}
        request = ask.RegisterBroker(broker_name=name, compressed=compressed, **fields)
        return self.ask(request, body, peer)

    def listed(self, request: Request) -> list[str]:
        return decode_topic_list(self.ask(request).body[0])[0]

    def topics(self) -> list[str]:
        return self.listed(ask.GetAllTopicListFromNamesrv())


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_every_request_of_a_name_server_has_a_desk(bench: Bench) -> None:
    wanted = {spec.header for spec in REQUESTS.values() if Answerer.NAMESRV in spec.answered_by}
    writes = {ask.PutKvConfig, ask.DeleteKvConfig}
    assert set(bench.core._handlers) | writes == wanted


@pytest.mark.fault
@pytest.mark.parametrize(
    "spec",
    [spec for spec in REQUESTS.values() if Answerer.NAMESRV in spec.answered_by],
    ids=lambda spec: str(spec.name),
)
def test_no_request_breaks_a_name_server(
    bench: Bench, spec: RequestSpec, rounds: Callable[[int], int]
) -> None:
    """An error that is not one of Kourou's own ends the process."""
    chance = Random(spec.code)
    for number in range(rounds(500)):
        request = hostile_request(spec, chance)
        bench.handle(bench.received(request, hostile_body(chance), peer=number % 5))
    bench.handle(Disconnected(Peer(3, "zmq", ("127.0.0.1", 3))), Tick(1))
    assert bench.register(version=9).code == Code.SUCCESS
    assert "T" in bench.topics()
    for name in bench.topics():
        check_topic(name)


# -- brokers and routes ----------------------------------------------------------------------------


@pytest.mark.feature("F024")
def test_a_route(bench: Bench) -> None:
    config = TopicConfig("T", read_queue_nums=4, write_queue_nums=8, perm=6, topic_sys_flag=1)
    assert bench.register(topics=(config,)).code == Code.SUCCESS
    reply = bench.ask(ask.GetRouteInfoByTopic(topic="T"))
    route = decode_topic_route(reply.body[0])
    assert route.broker_datas == (BrokerData("C", "broker-a", {0: "broker-a:1"}),)
    assert route.queue_datas == (QueueData("broker-a", 4, 8, 6, 1),)
    missing = bench.ask(ask.GetRouteInfoByTopic(topic="U"))
    assert missing.code == Code.TOPIC_NOT_EXIST
    assert "No topic route info in name server for the topic: U" in missing.remark


def test_a_compressed_registration(bench: Bench) -> None:
    assert bench.register(compressed=True).code == Code.SUCCESS
    assert bench.topics() == ["T"]


def test_a_damaged_registration_changes_nothing(bench: Bench) -> None:
    assert bench.register(body_crc32=12345).code == Code.SYSTEM_ERROR
    request = ask.RegisterBroker(
        broker_name="b", broker_addr="b:1", cluster_name="C", broker_id=0, compressed=True
    )
    assert bench.ask(request, b"no zlib").code == Code.SYSTEM_ERROR
    assert bench.topics() == []


def test_a_follower_hears_of_its_leader(bench: Bench) -> None:
    bench.register(ha_server_addr="ha:1")
    reply = bench.register(peer=2, broker_id=1, broker_addr="f:1")
    assert reply.header == ask.RegisterBrokerResponse(
        ha_server_addr="ha:1", master_addr="broker-a:1"
    )


@pytest.mark.feature("F035")
def test_a_lost_connection_takes_along_what_it_registered(bench: Bench) -> None:
    bench.register(peer=7)
    bench.register("broker-b", peer=8, topics=("U",))
    assert bench.handle(Disconnected(Peer(9, "zmq", ("127.0.0.1", 9)))) == []
    assert bench.topics() == ["T", "U"]
    assert bench.handle(Disconnected(Peer(7, "zmq", ("127.0.0.1", 7)))) == []
    assert bench.topics() == ["U"]


@pytest.mark.feature("F025")
def test_silence_is_noticed_by_the_scan(bench: Bench) -> None:
    bench.register()
    bench.now_ms += 119_999
    bench.handle(Tick(0))
    assert bench.topics() == ["T"]
    bench.register("broker-b", topics=("U",))
    bench.now_ms += 9_999
    bench.handle(Tick(0))  # expired, but the next scan is only due after 10 s
    assert bench.topics() == ["T", "U"]
    bench.now_ms += 1
    bench.handle(Tick(0))
    assert bench.topics() == ["U"]
    assert bench.core.expired == 1
    assert decode_cluster_info(bench.ask(ask.GetBrokerClusterInfo()).body[0]).clusters == {
        "C": ("broker-b",)
    }


def test_a_data_version_is_compared_and_counts_as_life(bench: Bench) -> None:
    bench.register(version=5)
    fields = {"broker_name": "broker-a", "broker_addr": "broker-a:1", "cluster_name": "C"}
    question = ask.QueryDataVersion(**fields, broker_id=0)
    bench.now_ms += 100_000
    same = bench.ask(question, encode_data_version(DataVersion(1, 5)))
    assert same.header == ask.QueryDataVersionResponse(changed=False)
    other = bench.ask(question, encode_data_version(DataVersion(1, 6)))
    assert other.header == ask.QueryDataVersionResponse(changed=True)
    assert decode_data_version(other.body[0]) == DataVersion(1, 5)
    bench.now_ms += 100_000
    bench.handle(Tick(0))
    assert bench.topics() == ["T"]
    bench.now_ms += 20_000
    bench.handle(Tick(0))
    assert bench.topics() == []
    unknown = bench.ask(question, encode_data_version(DataVersion(1, 5)))
    assert unknown.header == ask.QueryDataVersionResponse(changed=True)


def test_unregistering_is_answered_even_when_stale(bench: Bench) -> None:
    bench.register(peer=1)
    fields = {"broker_name": "broker-a", "broker_addr": "broker-a:1", "cluster_name": "C"}
    farewell = ask.UnregisterBroker(**fields, broker_id=0)
    assert bench.ask(farewell, peer=2).code == Code.SUCCESS
    assert bench.topics() == ["T"]
    assert bench.ask(farewell, peer=1).code == Code.SUCCESS
    assert bench.topics() == []


@pytest.mark.feature("F359")
def test_wiping_and_giving_back(bench: Bench) -> None:
    bench.register(topics=("T", "U"))
    wiped = bench.ask(ask.WipeWritePermOfBroker(broker_name="broker-a"))
    assert wiped.header == ask.WipeWritePermOfBrokerResponse(wipe_topic_count=2)
    route = decode_topic_route(bench.ask(ask.GetRouteInfoByTopic(topic="T")).body[0])
    assert route.queue_datas[0].perm == 4
    back = bench.ask(ask.AddWritePermOfBroker(broker_name="broker-a"))
    assert back.header == ask.AddWritePermOfBrokerResponse(add_topic_count=2)


def test_lists(bench: Bench) -> None:
    no_topics = bench.ask(ask.GetSystemTopicListFromNamesrv())
    assert decode_topic_list(no_topics.body[0]) == ([], None)
    flags = {"plain": 0, "unit": 1, "sub": 2, "both": 3}
    flagged = [TopicConfig(name, topic_sys_flag=flag) for name, flag in flags.items()]
    bench.register(cluster_name="C1", topics=flagged)
    bench.register("broker-b", peer=2, cluster_name="C2", topics=("other", "plain"))
    info = decode_cluster_info(bench.ask(ask.GetBrokerClusterInfo()).body[0])
    assert info.clusters == {"C1": ("broker-a",), "C2": ("broker-b",)}
    assert info.brokers["broker-a"] == BrokerData("C1", "broker-a", {0: "broker-a:1"})
    assert bench.core.routes.counts() == {"C1": 1, "C2": 1}
    system = bench.ask(ask.GetSystemTopicListFromNamesrv())
    names = ["C1", "C2", "broker-a", "broker-b"]
    assert decode_topic_list(system.body[0]) == (names, "broker-a:1")
    assert bench.topics() == ["plain", "unit", "sub", "both", "other"]
    assert bench.listed(ask.GetTopicsByCluster(cluster="C2")) == ["plain", "other"]
    assert bench.listed(ask.GetUnitTopicList()) == ["unit", "both"]
    assert bench.listed(ask.GetHasUnitSubTopicList()) == ["sub", "both"]
    assert bench.listed(ask.GetHasUnitSubUnunitTopicList()) == ["sub"]
    assert bench.ask(ask.DeleteTopicInNamesrv(topic="other")).code == Code.SUCCESS
    assert "other" not in bench.topics()


# -- key/value settings ----------------------------------------------------------------------------


def recorded(effect: RecordKeyValues) -> KeyValuesWritten:
    events = [
        Recorded(effect.expected_offset + at, -1, 5, "t", "", "", event)
        for at, event in enumerate(effect.events)
    ]
    return KeyValuesWritten(events, None, effect.request)


def put(key: str, value: str, namespace: str = "N") -> ask.PutKvConfig:
    return ask.PutKvConfig(namespace=namespace, key=key, value=value)


@pytest.mark.feature("F023")
def test_a_change_is_answered_when_it_is_durable(bench: Bench) -> None:
    (effect,) = bench.handle(bench.received(put("a", "1")))
    assert isinstance(effect, RecordKeyValues)
    assert list(effect.events) == [KeyValuePut("N", "a", "1")]
    assert effect.cause.actor == "zmq:127.0.0.1:1#1"
    question = ask.GetKvConfig(namespace="N", key="a")
    assert bench.ask(question).code == Code.QUERY_NOT_FOUND
    (reply,) = bench.handle(recorded(effect))
    assert (reply.code, reply.to) == (Code.SUCCESS, effect.request.to)
    assert bench.ask(question).header == ask.GetKvConfigResponse(value="1")
    table = bench.ask(ask.GetKvListByNamespace(namespace="N"))
    assert decode_kv_table(table.body[0]) == {"a": "1"}
    assert bench.ask(ask.GetKvListByNamespace(namespace="M")).code == Code.QUERY_NOT_FOUND


def test_changes_are_decided_one_after_the_other(bench: Bench) -> None:
    first, second = bench.received(put("a", "1")), bench.received(put("a", "2"))
    third = bench.received(ask.DeleteKvConfig(namespace="N", key="a"))
    (effect,) = bench.handle(first, second, third)
    reply, effect = bench.handle(recorded(effect))
    assert reply.to == first.to
    assert list(effect.events) == [KeyValuePut("N", "a", "2", "1")]
    assert effect.expected_offset == 1
    reply, effect = bench.handle(recorded(effect))
    assert list(effect.events) == [KeyValueDeleted("N", "a", "2")]
    assert bench.handle(recorded(effect))[0].to == third.to
    assert bench.core.key_values.table == {}


def test_a_change_that_changes_nothing_or_is_refused_holds_up_nobody(bench: Bench) -> None:
    effects = bench.handle(
        bench.received(ask.DeleteKvConfig(namespace="N", key="a")),
        bench.received(put("", "1")),
        bench.received(put("a", "1")),
    )
    assert [type(effect) for effect in effects] == [Reply, Reply, RecordKeyValues]
    assert [effects[0].code, effects[1].code] == [Code.SUCCESS, Code.SYSTEM_ERROR]
    bench.handle(recorded(effects[2]))
    assert bench.ask(put("a", "1")).code == Code.SUCCESS, "it has this value"


@pytest.mark.fault
def test_a_database_that_is_down(bench: Bench) -> None:
    waiting = bench.received(put("b", "2"))
    (effect,) = bench.handle(bench.received(put("a", "1")), waiting)
    error = MetadataUnavailable("the database is away")
    reply, effect = bench.handle(KeyValuesWritten((), error, effect.request))
    assert (reply.code, reply.remark) == (Code.METADATA_UNAVAILABLE, "the database is away")
    assert effect.request is waiting
    assert bench.core.key_values.table == {}


def test_waiting_changes_are_bounded(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_values, "KEY_VALUE_WRITES_WAITING_MAX", 1)
    effects = bench.handle(*(bench.received(put(str(each), "1")) for each in range(3)))
    assert [type(effect) for effect in effects] == [RecordKeyValues, Reply]
    assert effects[1].code == Code.SYSTEM_BUSY


def test_order_settings_go_to_brokers_and_on_request_into_routes() -> None:
    for wished in (True, False):
        bench = Bench(order_messages=wished)
        (effect,) = bench.handle(
            bench.received(put("T", "broker-a:4", namespace="ORDER_TOPIC_CONFIG"))
        )
        bench.handle(recorded(effect))
        reply = bench.register()
        assert decode_kv_table(reply.body[0]) == {"T": "broker-a:4"}
        route = decode_topic_route(bench.ask(ask.GetRouteInfoByTopic(topic="T")).body[0])
        assert route.order_topic_conf == ("broker-a:4" if wished else None)


# -- users -----------------------------------------------------------------------------------------


class Members:
    """The keys of brokers."""

    def allows(self, key: str, /) -> bool:
        return key == curve_key("member")


class Secured:
    """A core that has the users of a broker, and the broker."""

    def __init__(self) -> None:
        self.bench = Bench()
        gate = PublishedGate(Members(), secret_box())
        registry = SettingsRegistry.of(self.bench.settings)
        self.bench.core = NamesrvCore(self.bench.settings, KeyValues(), registry, "", gate)
        self.broker = SecuredBroker()
        self.root = self.broker.administrator()
        self.member = Sender(key=curve_key("member"))

    def give(self, sender: Sender, request: Request, *body: bytes) -> list[Any]:
        return list(self.bench.handle(self.broker.received(sender, request, *body)))

    def ask(self, sender: Sender, request: Request, *body: bytes) -> Reply:
        [reply] = [one for one in self.give(sender, request, *body) if isinstance(one, Reply)]
        return reply

    def registered(self) -> ask.RegisterBrokerResponse:
        request = ask.RegisterBroker(
            cluster_name="C", broker_name="broker-a", broker_addr="a:1", broker_id=0
        )
        topics = (TopicConfig("orders-a"), TopicConfig("bills"))
        body = encode_registration(BrokerRegistration(topics, DataVersion(1, 1)))
        reply = self.ask(self.member, request, body)
        assert reply.code == Code.SUCCESS
        assert isinstance(reply.header, ask.RegisterBrokerResponse)
        return reply.header

    def publish(self) -> None:
        request = ask.PutUsers(cluster_name="C", broker_name="broker-a")
        body = encode_access(self.broker.access)
        assert self.ask(self.member, request, body).code == Code.SUCCESS


def test_a_broker_hears_which_of_its_users_are_known() -> None:
    secured = Secured()
    assert secured.registered().users == ""
    secured.publish()
    assert secured.registered().users == secured.broker.access.mark


def test_without_keys_of_brokers_no_users_are_taken(bench: Bench) -> None:
    assert bench.register().header == ask.RegisterBrokerResponse()
    request = ask.PutUsers(cluster_name="C", broker_name="broker-a")
    assert bench.ask(request, encode_access(AccessAggregate())).code == Code.NO_PERMISSION


def test_users_change_what_they_have_a_right_to() -> None:
    secured = Secured()
    writer = secured.broker.create(secured.root, "till", "writer:orders-")
    secured.registered()
    secured.publish()
    topics = secured.ask(writer, ask.GetAllTopicListFromNamesrv())
    assert decode_topic_list(topics.body[0])[0] == ["orders-a"]
    delete = ask.DeleteTopicInNamesrv(topic="bills")
    assert secured.ask(writer, delete).code == Code.NO_PERMISSION
    assert secured.bench.core.routes.topics() == ["orders-a", "bills"]
    assert secured.ask(secured.root, delete).code == Code.SUCCESS
    assert secured.bench.core.routes.topics() == ["orders-a"]


def test_the_history_has_the_user_who_set_a_value() -> None:
    secured = Secured()
    secured.publish()
    request = ask.PutKvConfig(namespace="N", key="a", value="1")
    noted, effect = secured.give(secured.root, request)
    assert (noted.allowed, noted.user, noted.by) == (True, "root", "role administrator")
    assert effect.cause.actor == "User:root"
    refused, _ = secured.give(ANYBODY, request)
    assert (refused.user, refused.request) == ("anonymous", "PutKvConfig")
    [reply] = secured.bench.handle(recorded(effect))
    assert reply.code == Code.SUCCESS


# -- settings --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (b"kvConfigPath=/etc/passwd\n", Code.NO_PERMISSION),
        (b"bindAddress=0.0.0.0\n", Code.NO_PERMISSION),
        (b"orderMessageEnable=true\n", Code.SYSTEM_ERROR),
        (b"nonsense=1\n", Code.SYSTEM_ERROR),
        (b"", Code.SYSTEM_ERROR),
    ],
)
def test_no_setting_is_changed_from_afar(bench: Bench, text: bytes, code: Code) -> None:
    assert bench.ask(ask.UpdateNamesrvConfig(), text).code == code
    assert bench.ask(ask.GetNamesrvConfig()).body == (b"listenPort=9876\n",)


# -- promotions ------------------------------------------------------------------------------------

PROMOTED = 2**32 + 65


def registering(bench: Bench, epoch: int | None, address: str, peer: int) -> Sequence[Any]:
    request = ask.RegisterBroker(
        broker_name="broker-a", cluster_name="C", broker_addr=address, broker_id=0, epoch=epoch
    )
    body = encode_registration(BrokerRegistration((), DataVersion(1, 1)))
    return bench.handle(bench.received(request, body, peer))


@pytest.mark.feature("F137")
def test_a_promotion_is_recorded_and_outlives_the_promoted_leader(bench: Bench) -> None:
    registering(bench, 64, "old:1", 1)
    effect, reply = registering(bench, PROMOTED, "new:1", 2)
    assert reply.code == Code.SUCCESS
    assert effect.events == [KeyValuePut("KOUROU_PROMOTED", "C/broker-a", f"{PROMOTED} new:1")]
    assert (effect.cause.actor, effect.cause.reason) == (
        "name server", "a promoted leader registered",
    )  # fmt: skip
    assert bench.handle(recorded(effect)) == [], "nobody asked for it"
    bench.handle(Disconnected(Peer(2, "zmq", ("127.0.0.1", 2))))
    (refused,) = registering(bench, 128, "old:1", 1)
    assert refused.code == Code.SERVICE_NOT_AVAILABLE
    assert refused.header == ask.RegisterBrokerResponse(epoch=PROMOTED)
    assert "start it as a follower" in refused.remark
    assert bench.core.routes.members() == []


@pytest.mark.feature("F137")
def test_a_follower_hears_of_the_newest_promotion(bench: Bench) -> None:
    effect, _ = registering(bench, PROMOTED, "new:1", 2)
    bench.handle(Disconnected(Peer(2, "zmq", ("127.0.0.1", 2))))
    told = bench.register(peer=3, broker_id=2, epoch=64)
    assert told.header == ask.RegisterBrokerResponse(epoch=PROMOTED), "before it is durable"
    bench.handle(recorded(effect))
    assert bench.register(peer=3, broker_id=2, epoch=64).header == told.header
    assert bench.register(peer=4, broker_id=3).header == ask.RegisterBrokerResponse(), "RocketMQ's"


def test_a_promotion_that_could_not_be_recorded_is_recorded_with_the_next_registration(
    bench: Bench,
) -> None:
    effect, _ = registering(bench, PROMOTED, "new:1", 2)
    error = MetadataUnavailable("the database is locked")
    assert bench.handle(KeyValuesWritten((), error, effect.request)) == []
    again, _ = registering(bench, PROMOTED, "new:1", 2)
    assert again.events == effect.events


def test_an_operator_may_forget_a_promotion(bench: Bench) -> None:
    effect, _ = registering(bench, PROMOTED, "new:1", 2)
    bench.handle(recorded(effect))
    bench.handle(Disconnected(Peer(2, "zmq", ("127.0.0.1", 2))))
    forget = ask.DeleteKvConfig(namespace="KOUROU_PROMOTED", key="C/broker-a")
    (deleting,) = bench.handle(bench.received(forget))
    bench.handle(recorded(deleting))
    (reply,) = registering(bench, 128, "old:1", 1)
    assert reply.code == Code.SUCCESS


def test_a_name_server_takes_no_promise_that_it_does_not_keep(bench):
    answer = bench.ask(ask.UpdateNamesrvConfig(), b"useTLS=true\n")
    assert answer.code == Code.SYSTEM_ERROR
    assert "useTLS=true is refused: Kourou does not use TLS" in answer.remark
    assert bench.ask(ask.UpdateNamesrvConfig(), b"useTLS=false\n").code == Code.SUCCESS
