"""Answers that wait until name servers know the topic."""

from __future__ import annotations

import pytest

from kourou.engine.admin.topic_handler import ANNOUNCE_WAIT_MS
from kourou.engine.inputs import RegistrationDone, StoreFailed
from kourou.errors import Code
from kourou.protocol.messages.broker_admin import UpdateAndCreateTopic
from kourou.runtime.core import Disconnected
from kourou_rigs.engine import Engine

CREATE = UpdateAndCreateTopic(topic="fresh", read_queue_nums=4, write_queue_nums=4, perm=6)
MORE = UpdateAndCreateTopic(topic="more", read_queue_nums=1, write_queue_nums=1, perm=6)


@pytest.fixture
def engine() -> Engine:
    return Engine(name_servers=False)


def test_who_makes_a_topic_is_answered_when_it_is_known(engine, draft, records) -> None:
    sent = engine.send(*records([draft(topic="fresh")], targets=[("fresh", 0)]))
    assert sent not in engine.replies
    assert len(engine.stored("fresh")) == 1
    other = engine.send(*records([draft(topic="fresh")], targets=[("fresh", 0)]), peer=2)
    assert engine.replies[other].code == Code.SUCCESS, "it is there already"
    made = engine.send(
        UpdateAndCreateTopic(topic="more", read_queue_nums=1, write_queue_nums=1, perm=6)
    )
    engine.handle(RegistrationDone(1))
    assert engine.replies[sent].code == Code.SUCCESS
    assert made not in engine.replies
    engine.handle(RegistrationDone(2))
    assert engine.replies[made].code == Code.SUCCESS


def test_it_waits_for_the_disk_and_for_the_name_servers() -> None:
    engine = Engine(sync_flush=True, name_servers=False)
    made = engine.send(CREATE)
    engine.flush()
    assert made not in engine.replies
    engine.handle(RegistrationDone(1))
    assert engine.replies[made].code == Code.SUCCESS
    again = engine.send(
        UpdateAndCreateTopic(topic="more", read_queue_nums=1, write_queue_nums=1, perm=6)
    )
    engine.handle(RegistrationDone(2))
    assert again not in engine.replies
    engine.flush()
    assert engine.replies[again].code == Code.SUCCESS


def test_slow_name_servers_are_waited_for_no_longer_than_that(engine) -> None:
    made = engine.send(CREATE)
    engine.advance(ANNOUNCE_WAIT_MS - 1)
    assert made not in engine.replies
    engine.advance(1)
    assert engine.replies[made].code == Code.SUCCESS
    engine.handle(RegistrationDone(1))
    assert engine.core.parts.topic_registration.waiting == 0


def test_what_failed_is_reported_at_once() -> None:
    engine = Engine(sync_flush=True, name_servers=False)
    made = engine.send(CREATE)
    engine.handle(StoreFailed("EIO"))
    assert engine.replies[made].code == Code.OUTCOME_UNKNOWN


def test_nothing_is_kept_for_who_is_gone(engine) -> None:
    made = engine.send(CREATE)
    engine.handle(Disconnected(engine.peer(1)))
    assert engine.core.parts.topic_registration.waiting == 0
    engine.handle(RegistrationDone(1))
    assert made not in engine.replies
