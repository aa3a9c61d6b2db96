"""Who is alive, who is dropped when, and what a route says."""

from __future__ import annotations

import pytest

from kourou.errors import BadRequest, Throttled, TopicNotFound
from kourou.model.topic import DataVersion, TopicConfig
from kourou.protocol.bodies.registration_body import BrokerRegistration
from kourou.runtime import Peer
from kourou_namesrv import core
from kourou_namesrv.core import BrokerTable
from kourou_namesrv.registrations import BrokerIdentity, Outdone


def peer(number: int = 1, carrier: str = "zmq", listener: str = "internal") -> Peer:
    return Peer(number, carrier, ("127.0.0.1", number), listener)


def broker(
    name: str = "broker-a",
    broker_id: int = 0,
    address: str = "",
    cluster: str = "C",
    **rest: object,
) -> BrokerIdentity:
    return BrokerIdentity(
        cluster,
        name,
        broker_id,
        address or f"{name}-{broker_id}:10911",
        **rest,  # type: ignore[arg-type]  # a test's shorthand
    )


def having(*topics: str | TopicConfig, version: int = 1) -> BrokerRegistration:
    configs = [topic if isinstance(topic, TopicConfig) else TopicConfig(topic) for topic in topics]
    return BrokerRegistration(tuple(configs), DataVersion(version, version))


@pytest.fixture
def routes() -> BrokerTable:
    return BrokerTable()


ASKER = peer(99)


def brokers_of(routes: BrokerTable, topic: str, asker: Peer = ASKER) -> dict[str, dict[int, str]]:
    route = routes.route(topic, asker, None)
    return {data.broker_name: data.broker_addrs for data in route.broker_datas}


# -- registering -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "identity",
    [
        broker(name=""),
        broker(cluster=""),
        broker(name="a\nb"),
        broker(name="n" * 256),
        broker(broker_id=-1),
    ],
)
def test_a_broker_without_a_decent_name_is_refused(
    routes: BrokerTable, identity: BrokerIdentity
) -> None:
    with pytest.raises(BadRequest):
        routes.register(identity, having("T"), peer(), 0)
    assert routes.topics() == []


def test_an_odd_topic_costs_nothing_else(routes: BrokerTable) -> None:
    routes.register(broker(), having("", "a\nb", "x" * 256, "good", "dotted.name"), peer(), 0)
    assert routes.topics() == ["good", "dotted.name"]


def test_brokers_are_bounded(routes: BrokerTable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core, "BROKERS_MAX", 2)
    routes.register(broker("a"), having(), peer(1), 0)
    routes.register(broker("b"), having(), peer(2), 0)
    with pytest.raises(Throttled):
        routes.register(broker("c"), having(), peer(3), 0)
    routes.register(broker("b", 1), having(), peer(3), 0)


def test_topics_change_only_with_the_version(routes: BrokerTable) -> None:
    routes.register(broker(), having("T"), peer(), 0)
    routes.register(broker(), having("U"), peer(), 1)
    assert routes.topics() == ["T"]
    routes.register(broker(), having("U", version=2), peer(), 2)
    assert routes.topics() == ["T", "U"]  # a topic that is no longer listed keeps its route


def test_topics_come_from_leaders_only(routes: BrokerTable) -> None:
    routes.register(broker(broker_id=1), having("T"), peer(), 0)
    assert routes.topics() == []
    routes.register(broker(), having("U"), peer(2), 0)
    assert brokers_of(routes, "U") == {"broker-a": {1: "broker-a-1:10911", 0: "broker-a-0:10911"}}


def test_a_follower_that_becomes_leader_stands_once(routes: BrokerTable) -> None:
    routes.register(broker(broker_id=1, address="x:1"), having("T"), peer(), 0)
    routes.register(broker(broker_id=0, address="x:1"), having("T"), peer(), 1)
    assert brokers_of(routes, "T") == {"broker-a": {0: "x:1"}}


# -- leaving ---------------------------------------------------------------------------------------


def test_an_old_connection_that_closes_late_changes_nothing(routes: BrokerTable) -> None:
    routes.register(broker(), having("T"), peer(1), 0)
    routes.register(broker(), having("T"), peer(2), 1)
    assert routes.disconnected(peer(1)) == []
    assert routes.topics() == ["T"]
    assert len(routes.disconnected(peer(2))) == 1


def test_unregistering(routes: BrokerTable) -> None:
    routes.register(broker(), having("T"), peer(1), 0)
    routes.register(broker(broker_id=1), having("T"), peer(2), 0)
    assert routes.unregister(broker(), peer(1))
    assert brokers_of(routes, "T") == {"broker-a": {1: "broker-a-1:10911"}}
    assert routes.unregister(broker(broker_id=1), peer(2))
    assert routes.topics() == []
    assert not routes.unregister(broker(), peer(1))


@pytest.mark.parametrize(
    ("old_address", "old_peer"), [("old:1", 1), ("new:1", 1)], ids=["address", "connection"]
)
def test_a_stale_farewell_does_not_delete_the_successor(
    routes: BrokerTable, old_address: str, old_peer: int
) -> None:
    """RocketMQ issue 11043: the old process says farewell after the new one registered."""
    routes.register(broker(address=old_address), having("T"), peer(old_peer), 0)
    routes.register(broker(address="new:1"), having("T"), peer(2), 1)
    assert not routes.unregister(broker(address=old_address), peer(old_peer))
    assert brokers_of(routes, "T") == {"broker-a": {0: "new:1"}}


# -- addresses -------------------------------------------------------------------------------------


def test_each_listener_gets_addresses_it_can_dial(routes: BrokerTable) -> None:
    addresses = {"zmq:internal": "in:20911", "zmq:host": "127.0.0.1:20911", "tcp:host": "h:10911"}
    routes.register(broker(addresses=addresses), having("T"), peer(), 0)

    def seen(carrier: str, listener: str) -> str:
        return brokers_of(routes, "T", peer(9, carrier, listener))["broker-a"][0]

    assert seen("zmq", "internal") == "in:20911"
    assert seen("zmq", "host") == "127.0.0.1:20911"
    assert seen("zmq", "other") == "in:20911"
    assert seen("tcp", "host") == "h:10911"


def test_a_carrier_that_a_broker_does_not_serve_never_hears_of_it(routes: BrokerTable) -> None:
    routes.register(broker("a"), having("T"), peer(1, "tcp"), 0)
    with pytest.raises(TopicNotFound, match="zmq:internal"):
        routes.route("T", ASKER, None)
    routes.register(broker("b"), having("T"), peer(2, "zmq"), 0)
    route = routes.route("T", ASKER, None)
    assert [queue.broker_name for queue in route.queue_datas] == ["b"]
    assert brokers_of(routes, "T", peer(9, "tcp")) == {"a": {0: "a-0:10911"}}


@pytest.mark.feature("F239")
def test_filter_servers_are_dialled_as_their_broker_is(routes: BrokerTable) -> None:
    """By the asker's carrier, on its listener or else the internal one, and never by another."""
    one = {"zmq:internal": "f1:20915", "zmq:host": "h:20915", "tcp:internal": "f1:10915"}
    other = {"zmq:internal": "f0:20916"}
    addresses = {
        "zmq:internal": "b:20911",
        "zmq:host": "h:20911",
        "tcp:internal": "b:10911",
        "tcp:host": "h:10911",
    }
    at = broker(addresses=addresses, filter_listeners=(one, other))
    registration = BrokerRegistration((TopicConfig("T"),), DataVersion(1, 1), ("f1:10915",))
    routes.register(at, registration, peer(), 0)

    def seen(carrier: str, listener: str) -> dict[str, tuple[str, ...]]:
        return routes.route("T", peer(9, carrier, listener), None).filter_server_table

    assert seen("zmq", "internal") == {"b:20911": ("f0:20916", "f1:20915")}
    assert seen("zmq", "host") == {"h:20911": ("f0:20916", "h:20915")}
    assert seen("tcp", "internal") == {"b:10911": ("f1:10915",)}
    assert seen("tcp", "host") == {"h:10911": ("f1:10915",)}
    routes.register(broker(addresses=addresses), having("T"), peer(), 1)
    assert seen("zmq", "internal") == seen("tcp", "internal") == {}


def test_filter_servers_of_a_broker_of_rocketmq_are_for_its_own_clients(
    routes: BrokerTable,
) -> None:
    addresses = {"zmq:internal": "b:20911"}
    registration = BrokerRegistration((TopicConfig("T"),), DataVersion(1, 1), ("f:1",))
    routes.register(broker(addresses=addresses), registration, peer(1, "tcp"), 0)
    assert routes.route("T", peer(9, "tcp"), None).filter_server_table == {
        "broker-a-0:10911": ("f:1",)
    }
    assert routes.route("T", ASKER, None).filter_server_table == {}


# -- operators -------------------------------------------------------------------------------------


@pytest.mark.feature("F359", "F034")
def test_a_wiped_broker_takes_no_writes_until_it_may(routes: BrokerTable) -> None:
    routes.register(broker("a"), having("T", TopicConfig("R", perm=4)), peer(1), 0)
    routes.register(broker("b"), having("T"), peer(2), 0)

    def perms(topic: str) -> dict[str, int]:
        return {
            queue.broker_name: queue.perm for queue in routes.route(topic, ASKER, None).queue_datas
        }

    assert routes.set_wiped("a", True) == 2
    assert perms("T") == {"a": 4, "b": 6}
    routes.register(broker("a"), having("T", "New", version=2), peer(1), 1)
    assert perms("T") == {"a": 4, "b": 6}
    assert perms("New") == {"a": 4}
    assert routes.set_wiped("a", False) == 3
    assert perms("T") == {"a": 6, "b": 6}
    assert perms("R") == {"a": 4}  # what was read-only before stays so
    assert routes.set_wiped("nobody", True) == 0


def test_a_restarted_broker_is_not_wiped(routes: BrokerTable) -> None:
    routes.register(broker(), having("T"), peer(1), 0)
    routes.set_wiped("broker-a", True)
    routes.disconnected(peer(1))
    routes.register(broker(), having("T"), peer(2), 1)
    assert routes.route("T", ASKER, None).queue_datas[0].perm == 6


def test_a_topic_is_deleted_everywhere_or_in_one_cluster(routes: BrokerTable) -> None:
    routes.register(broker("a", cluster="C1"), having("T", "U"), peer(1), 0)
    routes.register(broker("b", cluster="C2"), having("T"), peer(2), 0)
    routes.delete_topic("T", "C1")
    assert list(brokers_of(routes, "T")) == ["b"]
    routes.delete_topic("T", None)
    routes.delete_topic("T", None)
    assert routes.topics() == ["U"]


# -- lists -----------------------------------------------------------------------------------------


# -- epochs ----------------------------------------------------------------------------------------


@pytest.mark.feature("F137")
def test_a_leader_of_a_lower_epoch_is_refused_and_changes_nothing(routes: BrokerTable) -> None:
    new = broker(address="new:1", epoch=129)
    routes.register(new, having("T"), peer(1), 0)
    old = broker(address="old:1", epoch=64)
    with pytest.raises(
        Outdone, match=r"epoch 129 of broker broker-a was started by new:1"
    ) as refused:
        routes.register(old, having("U", version=2), peer(2), 0)
    assert refused.value.epoch == 129
    assert routes.members() == [new]
    assert routes.topics() == ["T"]


@pytest.mark.feature("F137")
def test_of_two_rival_promotions_the_higher_broker_id_stands(routes: BrokerTable) -> None:
    first, unheard = 2**32 + 65, 2**32 + 66
    restarted = broker(address="one:1", epoch=first + 64, promotion=first)
    routes.register(restarted, having("T"), peer(1), 0)
    second = broker(address="two:1", epoch=unheard, promotion=unheard)
    routes.register(second, having("T"), peer(2), 0)
    with pytest.raises(Outdone, match="promoted at the same time"):
        routes.register(restarted, having("T"), peer(1), 0)
    assert routes.members() == [second]


@pytest.mark.feature("F137")
def test_a_promoted_follower_takes_the_leaders_place(routes: BrokerTable) -> None:
    routes.register(broker(address="old:1", epoch=64), having("T"), peer(1), 0)
    routes.register(broker(broker_id=1, address="new:1", epoch=64), having(), peer(2), 0)
    promoted = broker(address="new:1", epoch=2**32 + 65)
    routes.register(promoted, having("T", version=2), peer(2), 0)
    assert brokers_of(routes, "T") == {"broker-a": {0: "new:1"}}


def test_brokers_that_tell_no_epoch_are_taken_as_they_come(routes: BrokerTable) -> None:
    routes.register(broker(address="a:1", epoch=129), having("T"), peer(1), 0)
    routes.register(broker(address="b:1"), having("T"), peer(2), 0)
    assert brokers_of(routes, "T") == {"broker-a": {0: "b:1"}}
    routes.register(broker(address="c:1", epoch=64), having("T"), peer(3), 0)
    assert brokers_of(routes, "T") == {"broker-a": {0: "c:1"}}


def test_a_follower_may_be_behind(routes: BrokerTable) -> None:
    routes.register(broker(epoch=129), having("T"), peer(1), 0)
    routes.register(broker(broker_id=1, epoch=64), having(), peer(2), 0)
    assert set(brokers_of(routes, "T")["broker-a"]) == {0, 1}
