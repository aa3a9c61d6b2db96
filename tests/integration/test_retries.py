"""A message that never succeeds, from its first attempt to the dead letters, on a real broker."""

from __future__ import annotations

import threading
from itertools import pairwise

import pytest

from kourou import ConsumerSettings, DeadLetter, MessageQueue
from kourou.model.message import DELAY_LEVELS_MS, RETRY_LEVEL
from kourou.model.subscription import ConsumeFromWhere, GroupConfig
from kourou.testing.cluster import Cluster

RETRIES = 5
GAPS_MS = DELAY_LEVELS_MS[RETRY_LEVEL - 1 :][:RETRIES]
"""10 s, 30 s, 1, 2 and 3 minutes."""


@pytest.fixture
def cluster(tmp_path):
    with Cluster(tmp_path) as cluster:
        yield cluster


class Attempts:
    """A handler that never succeeds and notes when it was called."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._seen = threading.Condition()
        self.at_ms: list[int] = []
        self.messages: list = []

    def __call__(self, message) -> None:
        with self._seen:
            self.at_ms.append(self._cluster.clock.now_ms)
            self.messages.append(message)
            self._seen.notify_all()
        raise ValueError(f"attempt {message.attempt} failed, too")

    def wait_for(self, count: int) -> None:
        with self._seen:
            assert self._seen.wait_for(lambda: len(self.at_ms) >= count, 60), len(self.at_ms)


@pytest.mark.feature("F213", "F215", "F216", "F220", "F221", "F222", "F224", "F315")
def test_the_whole_way_of_a_dead_letter(cluster):
    attempts = Attempts(cluster)
    first = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    settings = ConsumerSettings(
        consumer_group="billing", consume_from_where=first, max_reconsume_times=RETRIES
    )
    with cluster.client("billing", consumer=settings) as mq:
        sent = mq.send("payments", b"A-1", tag="paid", keys=["A-1"])
        with mq.listen("payments", attempts) as listener:
            attempts.wait_for(1)
            for number, gap_ms in enumerate(GAPS_MS, 2):
                while listener.counts.sent_back < number - 1:
                    cluster.clock.advance(0)
                cluster.clock.advance(gap_ms / 1_000)
                attempts.wait_for(number)
            while listener.counts.sent_back < len(GAPS_MS) + 1:
                cluster.clock.advance(0)
        gaps = [after - before for before, after in pairwise(attempts.at_ms)]
        for gap, wanted in zip(gaps, GAPS_MS, strict=True):
            assert wanted <= gap, "never early"
        assert {message.message_id for message in attempts.messages} == {sent.message_id}
        assert {message.origin_message_id for message in attempts.messages} == {
            attempts.messages[0].offset_message_id
        }
        assert len({message.offset_message_id for message in attempts.messages}) == RETRIES + 1
        assert {(m.topic, m.tag, m.keys) for m in attempts.messages} == {
            ("payments", "paid", ("A-1",))
        }
        assert [message.reconsume_times for message in attempts.messages] == list(
            range(RETRIES + 1)
        )

        reader = mq.pull_consumer("inspection")
        [queue] = reader.queues("%DLQ%billing")
        [dead] = reader.pull(queue, 0).messages
        assert (dead.body, dead.message_id, dead.reconsume_times) == (
            b"A-1",
            sent.message_id,
            RETRIES + 1,
        )
        assert dead.properties["RETRY_TOPIC"] == "payments"
        assert dead.properties["DLQ_REASON"] == "ValueError: attempt 6 failed, too"
        assert dead.origin_message_id == attempts.messages[0].offset_message_id


@pytest.mark.feature("F213", "F224")
def test_what_can_never_succeed_is_a_dead_letter_at_once(cluster):
    def handler(message):
        raise DeadLetter("no number")

    with cluster.client("billing") as mq:
        mq.send("payments", b"x")
        with mq.listen("payments", handler) as listener:
            while listener.counts.sent_back < 1:
                cluster.clock.advance(0)
        reader = mq.pull_consumer("inspection")
        [queue] = reader.queues("%DLQ%billing")
        [dead] = reader.pull(queue, 0).messages
        assert dead.properties["DLQ_REASON"] == "no number"


@pytest.mark.feature("F218", "F219")
def test_the_groups_number_counts_at_once_unless_an_instance_names_its_own(cluster):
    """The group's number is changed while both run; it is their brokers that look at it."""
    cluster.create_topic("payments", queues=2)
    first = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    own = ConsumerSettings(
        consumer_group="billing", consume_from_where=first, max_reconsume_times=1
    )

    def handler(message):
        raise ValueError("no")

    def queues(listener):
        return [queue for queue in listener.assigned if queue.topic == "payments"]

    def dead():
        found = reader.pull(MessageQueue("%DLQ%billing", "broker-a", 0), 0)
        return [message.body for message in found.messages]

    with (
        cluster.client("billing") as mq,
        cluster.client("billing", consumer=own) as other,
        mq.listen("payments", handler) as plain,
        other.listen("payments", handler) as named,
    ):
        reader = mq.pull_consumer("inspection")
        while [len(queues(plain)), len(queues(named))] != [1, 1]:
            cluster.clock.advance(0)
        for retries, expected in ((0, [b"plain 0"]), (1, [b"plain 0"])):
            mq.admin.groups.create(GroupConfig("billing", retry_max_times=retries))
            counts = [plain.counts.sent_back + 1, named.counts.sent_back + 1]
            mq.send("payments", b"plain %d" % retries, queue=queues(plain)[0])
            mq.send("payments", b"named %d" % retries, queue=queues(named)[0])
            while [plain.counts.sent_back, named.counts.sent_back] != counts:
                cluster.clock.advance(0)
            assert dead() == expected
