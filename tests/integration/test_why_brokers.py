"""Why is a message where it is, when brokers, copies and bytes are not as they should be?"""

from __future__ import annotations

import os
from contextlib import contextmanager

import pytest

from kourou.testing.cluster import Cluster

TRIES = 300
STEP_S = 0.1


def codes(answer) -> list[str]:
    return [one.code for one in answer.causes]


def until(cluster, ask, code):
    """Ask until the first cause has this code, while time goes on by little."""
    for _ in range(TRIES):
        told = ask()
        if told.causes[0].code == code:
            return told
        cluster.clock.advance(STEP_S)
    raise AssertionError(f"{codes(told)}, not {code}: {told}")


# -- retention, damage ----------------------------------------------------------------------------


def test_what_expired_says_where_the_queue_begins(kourou_cluster):
    small = {"mappedFileSizeCommitLog": 1 << 20, "fileReservedTime": 1}
    cluster = kourou_cluster(brokers=1, settings=small)
    topic = cluster.create_topic(queues=1)
    with cluster.client() as mq:
        sent = [mq.send(topic, os.urandom(400_000)) for _ in range(6)]
        view = cluster.members[0].service.view.store_view
        for _ in range(TRIES):  # a segment ages from when the broker first looks at it
            cluster.clock.leap(hours=2)
            mq.admin.brokers.delete_expired_log("broker-a")
            if cluster._thread.run(cluster.until(lambda: view.log_range()[0] > 0, 0.5)):
                break
        told = mq.admin.explain.message(f"{sent[0].queue!s}@0")
        assert codes(told) == ["expired"]
        facts = told.causes[0].facts
        assert (facts["offset"], facts["reserved_hours"]) == (0, 1)
        assert 0 < facts["lowest_offset"] <= 6
        assert codes(mq.admin.explain.message(sent[0].message_id, topic=topic)) == ["not_found"]


def test_damaged_bytes_are_named(kourou_cluster, tmp_path):
    cluster = kourou_cluster(brokers=1, storage="disk")
    topic = cluster.create_topic(queues=1)
    with cluster.client() as mq:
        sent = [mq.send(topic, b"the body of a message, number %d" % number) for number in range(3)]
        segment = cluster.folder / "broker-a" / "commitlog" / f"{0:020d}"
        damage(segment, b"number 1")
        told = mq.admin.explain.message(f"{sent[1].queue!s}@1")
        assert codes(told) == ["body_damaged"]
        assert told.causes[0].facts["damage"]
        assert codes(mq.admin.explain.message(sent[1].offset_message_id)) == ["body_damaged"]
        assert codes(mq.admin.explain.message(sent[2].offset_message_id)) == ["nobody_consumes"]


def damage(segment, text: bytes) -> None:
    """Flip one bit of the only place that has this text."""
    with segment.open("r+b") as file:
        at = file.read().index(text)
        file.seek(at)
        file.write(bytes([text[0] ^ 1]))


# -- brokers that are away ------------------------------------------------------------------------


def test_a_message_of_a_broker_that_is_away(kourou_cluster):
    cluster = kourou_cluster(brokers=2)
    topic = cluster.create_topic(queues=1)
    with cluster.client() as mq:
        sent = next(
            one
            for one in (mq.send(topic, b"x") for _ in range(2))
            if one.queue.broker_name == "broker-b"
        )
        cluster.chaos.kill("broker-b")
        told = mq.admin.explain.message(f"{sent.queue!s}@0")
        assert codes(told) == ["broker_away"]
        assert told.causes[0].facts == {"brokers": ("broker-b",)}
        assert codes(mq.admin.explain.message(sent.offset_message_id)) == ["broker_away"]


# -- copies ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """A leader and its follower, which confirms only what both have."""
    settings = {"brokerRole": "SYNC_MASTER", "slaveTimeout": 60_000}
    folder = tmp_path_factory.mktemp("pair")
    with Cluster(folder, brokers=1, replicas=1, settings=settings) as cluster:
        yield cluster


@contextmanager
def deaf(pair):
    """The follower hears nothing of its leader."""
    link = pair.replicas[0].service._link
    link._peer, link._heard = None, lambda frame: None
    try:
        yield link
    finally:
        del link._heard
        pair._thread.run(dial_again(link))


async def hang_up(link) -> None:
    link.pause()


async def dial_again(link) -> None:
    link._paused = False
    link.part()
    link.follow(link.address)


def test_copies_are_told_and_then_only_a_follower_answers(pair):
    topic = pair.create_topic(queues=1)
    with pair.client() as mq:
        while mq.send(topic, b"who copies?").status.value != "SEND_OK":
            pass
        sent = mq.send(topic, b"x")
        told = mq.admin.explain.message(sent.message_id)
        assert [(one.role, one.written) for one in told.storage.copies] == [
            ("leader", True),
            ("follower", True),
        ]
        assert told.storage.confirmed is True

        with deaf(pair) as link:
            mq.send_oneway(topic, b"y")
            later = f"{sent.queue!s}@{sent.offset + 1}"
            until(pair, lambda: mq.admin.explain.message(later), "not_confirmed")
            told = mq.admin.explain.message(later)  # the first may have asked before it was stored
            assert told.causes[0].facts["behind"] == ("brokerId 1",)
            pair._thread.run(hang_up(link))  # the leader does not wait for it any more
            told = until(pair, lambda: mq.admin.explain.message(later), "nobody_consumes")
            assert codes(told) == ["nobody_consumes", "copies_missing"]
            assert told.causes[1].facts["followers"] == ("brokerId 1",)
            assert [one.written for one in told.storage.copies] == [True, False]
        pair.clock.advance(2)
        for _ in range(TRIES):
            told = mq.admin.explain.message(later)
            if codes(told) == ["nobody_consumes"]:
                break
            pair.clock.advance(STEP_S)
        assert [one.written for one in told.storage.copies] == [True, True]

        pair.chaos.kill("broker-a")
        told = until(
            pair, lambda: mq.admin.explain.message(f"{sent.queue!s}@{sent.offset}"), "stored"
        )
        assert codes(told)[-1] == "answered_by_follower"
        assert told.storage.by_leader is False
        assert told.missing, "members and history are not known there"
