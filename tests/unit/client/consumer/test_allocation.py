"""The shares must be those of RocketMQ, or members of a mixed group would overlap."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kourou.client.consumer.allocation import (
    Allocation,
    Averagely,
    AveragelyByCircle,
    ByConfig,
    ByMachineRoom,
    ConsistentHash,
    MachineRoomNearby,
)
from kourou.model.topic import MessageQueue

CIDS = ["c1@1", "c2@2", "c3@3"]


def queues(count: int, broker: str = "brokerA", topic: str = "TopicTest") -> list[MessageQueue]:
    return [MessageQueue(topic, broker, number) for number in range(count)]


def ids(strategy: Allocation, count: int, clients: list[str], broker: str) -> list[list[int]]:
    return [
        [queue.queue_id for queue in strategy(queues(count, broker), clients, client)]
        for client in clients
    ]


@pytest.mark.feature("F207", "F015")
def test_averagely_vector():
    assert ids(Averagely(), 8, CIDS, "brokerA") == [[0, 1, 2], [3, 4, 5], [6, 7]]


@pytest.mark.feature("F208")
def test_circle_vector():
    assert ids(AveragelyByCircle(), 8, CIDS, "brokerA") == [[0, 3, 6], [1, 4, 7], [2, 5]]


@pytest.mark.feature("F211")
def test_consistent_hash_vector():
    assert ids(ConsistentHash(), 8, CIDS, "brokerA") == [[], [1, 3], [0, 2, 4, 5, 6, 7]]


@pytest.mark.feature("F210")
def test_machine_room_vector():
    strategy = ByMachineRoom(frozenset({"r1"}))
    assert ids(strategy, 5, ["c1", "c2"], "r1@b") == [[0, 1, 4], [2, 3]]


@pytest.mark.feature("F210")
def test_machine_room_leaves_out_other_rooms_and_unnamed_brokers():
    strategy = ByMachineRoom(frozenset({"r1"}))
    assert strategy(queues(4, "r2@b") + queues(4, "plain"), ["c1"], "c1") == []


@pytest.mark.feature("F204", "F205")
@pytest.mark.parametrize(
    ("count", "members", "shares"),
    [
        (5, 2, [3, 2]),
        (6, 3, [2, 2, 2]),
        (10, 20, [1] * 10 + [0] * 10),
        (20, 6, [4, 4, 3, 3, 3, 3]),
    ],
)
def test_the_seed_table(count, members, shares):
    clients = [f"C{number:02d}" for number in range(members)]
    assert [len(share) for share in ids(Averagely(), count, clients, "b")] == shares


@pytest.mark.feature("F209")
def test_config_gives_the_listed_queues_that_exist():
    listed = (MessageQueue("T", "b", 1), MessageQueue("T", "b", 9))
    assert ByConfig(listed)(queues(4, "b", "T"), ["x"], "x") == [MessageQueue("T", "b", 1)]


@pytest.mark.feature("F206")
def test_nearby_prefers_the_same_room_and_shares_orphans():
    rooms = queues(2, "IDC1-b") + queues(2, "IDC2-b") + queues(4, "IDC9-b")
    clients = ["IDC1-CID-0", "IDC2-CID-0"]
    strategy = MachineRoomNearby(Averagely())
    assert strategy.name == "MACHINE_ROOM_NEARBY-AVG"
    first = strategy(rooms, clients, clients[0])
    second = strategy(rooms, clients, clients[1])
    assert {queue.broker_name for queue in first} == {"IDC1-b", "IDC9-b"}
    assert len(first) == len(second) == 4
    assert sorted(first + second) == sorted(rooms)


@pytest.mark.feature("F206")
def test_nearby_uses_the_resolvers_it_is_given():
    strategy = MachineRoomNearby(
        Averagely(), broker_room=lambda name: name[-1], client_room=lambda name: name[-1]
    )
    rooms = queues(2, "x1") + queues(2, "x2")
    assert {q.broker_name for q in strategy(rooms, ["a1", "b2"], "a1")} == {"x1"}


@pytest.mark.parametrize(
    "strategy",
    [
        Averagely(),
        AveragelyByCircle(),
        ConsistentHash(),
        MachineRoomNearby(Averagely()),
        ByMachineRoom(frozenset({"r"})),
    ],
    ids=lambda strategy: strategy.name,
)
@given(
    count=st.integers(0, 40),
    clients=st.lists(st.text("abcd0-", min_size=1, max_size=6), min_size=1, max_size=9),
    shuffled=st.randoms(use_true_random=False),
)
@pytest.mark.feature("F202", "F203")
def test_shares_are_disjoint_and_cover_everything(strategy, count, clients, shuffled):
    everything = queues(count, "r@1")
    mixed = list(everything)
    shuffled.shuffle(mixed)
    shares = [strategy(mixed, clients, client) for client in sorted(set(clients))]
    given_out = [queue for share in shares for queue in share]
    assert sorted(given_out) == everything
    assert len(set(given_out)) == len(given_out)


@pytest.mark.parametrize("strategy", [Averagely(), AveragelyByCircle(), ConsistentHash()])
def test_a_stranger_gets_nothing(strategy):
    assert strategy(queues(4), CIDS, "stranger") == []
