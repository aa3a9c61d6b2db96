"""Dead letters: read, sent to their group again, marked as handled."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest

from kourou import DeadLetter
from kourou.client.admin.dead_letters import StoredDeadLetter
from kourou.errors import BadRequest
from kourou.model.message import Property
from kourou.testing.cluster import unique_name


@pytest.mark.feature("F365")
def test_a_dead_letter_goes_to_its_group_once_more(kourou_broker):
    topic, group = kourou_broker.create_topic(queues=1), unique_name("g")
    heard, died = [], threading.Semaphore(0)

    def handler(message):
        heard.append((message.topic, message.raw_body, message.attempt))
        died.release()
        if len(heard) == 1:
            raise DeadLetter("no such account")

    with kourou_broker.client(group) as mq:
        api = mq.admin.dead_letters
        assert api.of(group) == ()
        mq.send(topic, b"bill", tag="paid", keys=["K-1"], properties={"shop": "north"})
        with mq.listen(topic, handler):
            assert died.acquire(timeout=60)
            while not (found := api.of(group)):
                pass
            (dead_letter,) = found
            assert (dead_letter.topic, dead_letter.reason) == (topic, "no such account")
            assert dead_letter.message.properties["shop"] == "north"
            assert api.resend(group, found) == {dead_letter.message.message_id: None}
            assert died.acquire(timeout=60)
        assert heard == [(topic, b"bill", 1)] * 2
        assert len(api.of(group)) == 1, "the mark stays until it is moved"
        assert list(api.deal_with(group, found).values()) == [dead_letter.message.offset + 1]
        assert api.of(group) == ()
        with pytest.raises(BadRequest):
            api.of(group, count_max=0)


def test_one_client_at_a_time_holds_the_locks_of_a_groups_dead_letters(kourou_broker):
    topic, group = kourou_broker.create_topic(queues=1), unique_name("g")
    with kourou_broker.client("one") as one, kourou_broker.client("two") as two:
        assert one.admin.dead_letters.lock(group) == [], "there are none"
        one.admin.dead_letters.unlock(group)
        one.send(topic, b"bill")
        with kourou_broker.client(group) as mq, mq.subscribe(topic) as messages:
            next(iter(messages)).dead_letter("no such account")
        while not one.admin.dead_letters.of(group):
            pass
        for _ in range(2):  # the second time it is refreshed
            assert one.admin.dead_letters.lock(group) == []
        [refused] = two.admin.dead_letters.lock(group)
        assert refused.topic == f"%DLQ%{group}"
        two.admin.dead_letters.unlock(group)  # it is not its own to give back
        assert two.admin.dead_letters.lock(group) == [refused]
        one.admin.dead_letters.unlock(group)
        assert two.admin.dead_letters.lock(group) == []
        two.admin.dead_letters.unlock(group)


@pytest.mark.fault
def test_a_reason_that_is_too_long_is_cut_before_its_words_are_compared():
    """A producer may write any reason into a dead-letter topic."""
    message = SimpleNamespace(properties={Property.DLQ_REASON: "a-" * 15_000})
    assert StoredDeadLetter(message).cause == "a-" * 250
