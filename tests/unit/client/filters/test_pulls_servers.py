"""Which filter server judges which queue."""

from __future__ import annotations

from collections import Counter

import pytest

from kourou.client.filters.pulls import SHUN_MS, FilterServerChoice, shared_out
from kourou.client.session.route_table import queue_map
from kourou.model.topic import BrokerData, MessageQueue, QueueData, TopicRoute
from kourou_rigs.clock import ManualClock

LEADER, FOLLOWER = "10.0.0.1:20911", "10.0.0.2:20911"
SERVERS = ("10.0.0.1:20915", "10.0.0.1:20916", "10.0.0.1:20917")


def known(servers=SERVERS, *, queues=8, at=LEADER):
    route = TopicRoute(
        (BrokerData("c", "b", {0: LEADER, 1: FOLLOWER}),),
        (QueueData("b", queues, queues, 6),),
        {at: tuple(servers)},
    )
    return queue_map("T", route)


def queue(number: int) -> MessageQueue:
    return MessageQueue("T", "b", number)


class Wires:
    def __init__(self) -> None:
        self.connected: set[str] = set()
        self.lost: set[str] = set()
        self.clock = ManualClock()

    def servers(self) -> FilterServerChoice:
        return FilterServerChoice(self.clock, self.connected.__contains__, self.lost.__contains__)


@pytest.mark.feature("F239")
@pytest.mark.parametrize(("queues", "servers"), [(8, 1), (8, 2), (8, 3), (5, 4), (3, 4), (0, 2)])
def test_all_servers_have_about_as_many_queues(queues: int, servers: int):
    names = [f"10.0.0.1:{20915 + number}" for number in range(servers)]
    shared = shared_out([queue(number) for number in range(queues)], names)
    assert len(shared) == queues
    counts = Counter(dict.fromkeys(names, 0))
    counts.update(shared.values())
    assert max(counts.values()) - min(counts.values()) <= 1


def test_a_server_that_comes_moves_few_queues():
    queues = [queue(number) for number in range(64)]
    three, four = shared_out(queues, SERVERS), shared_out(queues, (*SERVERS, "10.0.0.1:20918"))
    moved = sum(three[one] != four[one] for one in queues)
    assert 16 <= moved <= 28  # a quarter must; counting instead of ranking would move 48


def test_every_member_chooses_alike():
    one, other = Wires().servers(), Wires().servers()
    for number in range(8):
        first = one.order(known(), queue(number), LEADER)
        assert sorted(first) == sorted(SERVERS)
        assert first == other.order(known(tuple(reversed(SERVERS))), queue(number), LEADER)


def test_another_member_of_the_broker_stands_in_with_its_servers():
    servers = Wires().servers()
    assert set(servers.order(known(at=LEADER), queue(0), FOLLOWER)) == set(SERVERS)
    assert servers.order(known(()), queue(0), LEADER) == ()
    assert servers.order(known(), MessageQueue("T", "other", 0), "10.0.0.9:1") == ()


def test_a_changed_route_changes_the_choice():
    servers = Wires().servers()
    assert set(servers.order(known(), queue(0), LEADER)) == set(SERVERS)
    assert set(servers.order(known(SERVERS[:1]), queue(0), LEADER)) == {SERVERS[0]}
    for count in (8, 32):
        more = known(queues=count)
        wanted = shared_out(more.readable, SERVERS)
        for one in more.readable:
            assert servers.order(more, one, LEADER)[0] == wanted[one]


def test_a_silent_server_is_skipped_until_it_is_connected_again():
    wires = Wires()
    servers = wires.servers()
    order = servers.order(known(), queue(0), LEADER)
    servers.silent(order[0])
    assert servers.order(known(), queue(0), LEADER) == list(order[1:])
    wires.connected.add(order[0])
    assert servers.order(known(), queue(0), LEADER) == list(order[1:])  # not so soon
    wires.clock.advance(SHUN_MS)
    assert servers.order(known(), queue(0), LEADER) == list(order)
    wires.connected.clear()
    assert servers.order(known(), queue(0), LEADER) == list(order[1:])
    servers.answered(order[0])
    assert servers.order(known(), queue(0), LEADER) == order


def test_one_whose_connection_is_lost_is_not_even_asked():
    wires = Wires()
    servers = wires.servers()
    order = servers.order(known(), queue(0), LEADER)
    wires.lost.add(order[0])
    assert servers.order(known(), queue(0), LEADER) == list(order[1:])
    wires.lost.clear()
    assert servers.order(known(), queue(0), LEADER) == order
    wires.lost |= set(order)
    assert servers.order(known(), queue(0), LEADER) == order


def test_if_all_were_silent_all_are_asked():
    servers = Wires().servers()
    order = servers.order(known(), queue(0), LEADER)
    for server in order:
        servers.silent(server)
    assert servers.order(known(), queue(0), LEADER) == order


def test_of_very_many_queues_the_hash_alone_decides():
    servers = Wires().servers()
    many = known(queues=2_000)
    counts = Counter(servers.order(many, queue(number), LEADER)[0] for number in range(2_000))
    assert min(counts.values()) > 500
