"""Time that is advanced carries everything with it; time that leaps leaves it behind."""

from __future__ import annotations

from itertools import pairwise

import pytest

from kourou.testing.cluster_clock import ClusterClock
from kourou.testing.cluster_thread import ClusterThread


@pytest.fixture
def settled() -> list[int]:
    """How far the clock was ahead, each time that was waited for what goes on."""
    return []


@pytest.fixture
def due() -> list[int]:
    """When the next delayed message is due."""
    return []


@pytest.fixture
def clock(settled, due):
    thread = ClusterThread()

    async def settle() -> None:
        settled.append(thread.clock.ahead_ms)

    yield ClusterClock(thread, thread.clock, settle, lambda: next(iter(due), None))
    thread.stop()


def test_it_goes_in_steps_with_a_pause_before_and_after_each(clock, settled):
    clock.advance(seconds=10)
    assert settled == list(range(0, 10_001, 200))


def test_a_step_ends_where_something_is_due(clock, settled, due):
    due.append(clock.now_ms + 1_234)
    clock.advance(seconds=10)
    assert 1_100 < settled[7] <= 1_234
    assert settled[6] == 1_200
    assert settled[-1] == 10_000


def test_long_ways_have_steps_that_no_request_times_out_in(clock, settled):
    clock.advance(minutes=30, hours=1, days=1)
    assert settled[-1] == 1_000 * (30 * 60 + 3_600 + 86_400)
    longest = max(later - earlier for earlier, later in pairwise(settled))
    assert longest == 2_000


def test_a_leap_is_one_step_before_which_all_that_is_under_way_arrives(clock, settled):
    clock.leap(hours=72)
    assert settled == [0, 72 * 3_600_000]


def test_it_never_goes_back(clock):
    for go in (clock.advance, clock.leap):
        with pytest.raises(AssertionError, match="does not go back"):
            go(seconds=-1)


def test_heartbeats_go_on_while_time_is_advanced(kourou_cluster):
    cluster = kourou_cluster(1)
    topic = cluster.create_topic()
    with cluster.client("g") as client, client.subscribe(topic):
        members = client.admin.groups.members
        assert len(members("g")) == 1
        cluster.clock.advance(minutes=10)  # a member that is silent for two minutes is given up
        assert [one.client_id for one in members("g")] == [client.client_id]


def test_a_held_pull_ends_in_its_time_and_the_next_message_comes_at_once(kourou_cluster):
    cluster = kourou_cluster(1)
    topic = cluster.create_topic(queues=1)
    seen = []
    with cluster.client("g") as client, client.listen(topic, lambda one: seen.append(one.body)):
        cluster.clock.advance(minutes=2)
        client.send(topic, b"after two minutes")
        cluster.sent().consumed(topic, "g")
    assert seen == [b"after two minutes"]
