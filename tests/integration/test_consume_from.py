"""Where a group without progress begins: old queues and young ones (F193)."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from kourou.client.admin.groups import TO_THE_END_MS
from kourou.client.settings.client_settings import ConsumerSettings
from kourou.model.subscription import ConsumeFromWhere
from kourou.model.topic import MessageQueue
from kourou.sync import Client
from kourou.testing.cluster import Cluster

FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
LAST = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
TIMESTAMP = ConsumeFromWhere.CONSUME_FROM_TIMESTAMP

OLD = "orders"
QUEUE = MessageQueue(OLD, "broker-a", 0)
SETTINGS = {
    "mappedFileSizeCommitLog": 65_536,
    # The machine's own disk is not what is tried here.
    "diskMaxUsedSpaceRatio": 95,
    "diskSpaceCleanForciblyRatio": 100,
    "diskSpaceWarningLevelRatio": 100,
}
HUNDRED_HOURS_MS = 360_000_000
SECONDS = 4
"""So long the old queue is filled; a quarter of it is deleted."""

MESSAGES = 400
_numbers = count(1)


@dataclass
class OldQueue:
    """A queue whose first messages are gone, and when the others were stored."""

    cluster: Cluster
    stored_ms: dict[int, int]

    def first_since(self, second: int) -> int:
        """The offset of the first message stored in that second or later."""
        return min(
            offset for offset, stored_ms in self.stored_ms.items() if stored_ms >= second * 1000
        )


def until(condition: Callable[[], bool]) -> None:
    """Ask again and again; each question is a round trip, so nothing spins."""
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline


def fill(cluster: Cluster, client: Client) -> None:
    """Messages over some seconds, and enough segments for a quarter of them."""
    client.admin.topics.create(OLD, queues=1)
    for _ in range(MESSAGES):
        client.send(OLD, b"x" * 1_000)
        cluster.clock.advance(SECONDS / MESSAGES)


def make_a_quarter_older(ages: Path) -> None:
    """As if a quarter of the log were a hundred hours older."""
    written = json.loads(ages.read_text())
    starts = sorted(written["ages_ms"], key=int)
    assert len(starts) >= 4
    for start in starts[: len(starts) // 4]:
        written["ages_ms"][start] += HUNDRED_HOURS_MS
    ages.write_text(json.dumps(written))


@pytest.fixture(scope="module")
def old(
    tmp_path_factory: pytest.TempPathFactory, kourou_admin: Callable[..., Any]
) -> Iterator[OldQueue]:
    folder = tmp_path_factory.mktemp("cluster")
    with Cluster(folder, storage="disk", settings=SETTINGS) as cluster, cluster.client() as client:
        fill(cluster, client)
    make_a_quarter_older(folder / "broker-a" / "kourou" / "ages.json")
    with Cluster(folder, storage="disk", settings=SETTINGS) as cluster:
        cluster.clock.leap(2 * SECONDS)  # the first one's time went so far ahead
        cleaned = kourou_admin(cluster.address, "deleteExpiredCommitLog", "-b", "broker-a")
        assert cleaned.returncode == 0, cleaned.stderr
        with Client(cluster.address) as client:
            until(lambda: client.admin.topics.stats(OLD)[QUEUE].min_offset > 0)
            span = client.admin.topics.stats(OLD)[QUEUE]
        stored_ms = {}
        with (
            consumer(cluster, FIRST) as client,
            client.subscribe(OLD) as messages,
        ):
            for message in messages:
                stored_ms[message.offset] = message.store_timestamp
                if message.offset == span.max_offset - 1:
                    break
        assert list(stored_ms) == list(range(span.min_offset, span.max_offset))
        yield OldQueue(cluster, stored_ms)


def consumer(cluster: Cluster, where: ConsumeFromWhere, second: int | None = None) -> Client:
    """A client of a group that nobody has heard of."""
    text = "" if second is None else time.strftime("%Y%m%d%H%M%S", time.localtime(second))
    settings = ConsumerSettings(
        consumer_group=f"group{next(_numbers)}", consume_from_where=where, consume_timestamp=text
    )
    return Client(cluster.address, consumer=settings)


def first_offset(client: Client, topic: str = OLD, *, fresh: bool = False) -> int:
    """Where this client's group begins; `fresh`: with a message sent after it joined."""
    with client, client.subscribe(topic) as messages:
        assert len(messages.assigned) == 1
        if fresh:
            client.send(topic, "fresh")
        return int(next(iter(messages)).offset)


@pytest.mark.feature("F193")
def test_from_the_first_offset_that_is_still_there(old: OldQueue) -> None:
    assert first_offset(consumer(old.cluster, FIRST)) == min(old.stored_ms) > 0


@pytest.mark.feature("F193")
def test_from_a_time_in_the_middle_of_the_queue(old: OldQueue) -> None:
    begin, end = min(old.stored_ms.values()) // 1000, max(old.stored_ms.values()) // 1000
    middle = range(begin + 1, end + 1)
    assert middle, "the kept part spans more than a second"
    for second in middle:
        expected = old.first_since(second)
        assert min(old.stored_ms) < expected
        assert first_offset(consumer(old.cluster, TIMESTAMP, second)) == expected


@pytest.mark.feature("F193")
def test_from_a_time_before_the_kept_part(old: OldQueue) -> None:
    long_ago = min(old.stored_ms.values()) // 1000 - 3_600
    assert first_offset(consumer(old.cluster, TIMESTAMP, long_ago)) == min(old.stored_ms)


@pytest.mark.feature("F193", "F303")
def test_from_the_end_and_from_a_time_that_is_yet_to_come(old: OldQueue) -> None:
    def end() -> int:
        with Client(old.cluster.address) as client:
            return client.admin.topics.stats(OLD)[QUEUE].max_offset

    for where, second in ((LAST, None), (TIMESTAMP, old.cluster.clock.now_ms // 1000 + 3_600)):
        expected = end()
        assert first_offset(consumer(old.cluster, where, second), fresh=True) == expected


@pytest.mark.feature("F193")
@pytest.mark.parametrize("where", [FIRST, LAST, TIMESTAMP])
def test_a_young_queue_is_read_from_its_begin(old: OldQueue, where: ConsumeFromWhere) -> None:
    topic = f"young{where}"
    with Client(old.cluster.address) as client:
        client.admin.topics.create(topic, queues=1)
        for number in range(5):
            client.send(topic, str(number))
    to_come = old.cluster.clock.now_ms // 1000 + 3_600 if where is TIMESTAMP else None
    assert first_offset(consumer(old.cluster, where, to_come), topic) == 0


def test_a_young_queue_can_be_passed_over_by_moving_the_group_first(old: OldQueue) -> None:
    client, topic = consumer(old.cluster, FIRST), "passed"
    with Client(old.cluster.address) as other:
        other.admin.topics.create(topic, queues=1)
        for number in range(5):
            other.send(topic, str(number))
        other.admin.groups.create(client._consuming.consumer_group)
        other.admin.offsets.reset(client._consuming.consumer_group, topic, TO_THE_END_MS)
    assert first_offset(client, topic, fresh=True) == 5


@pytest.mark.feature("F193", "F194")
@pytest.mark.parametrize("where", [FIRST, LAST, TIMESTAMP])
def test_progress_goes_before_all_three(old: OldQueue, where: ConsumeFromWhere) -> None:
    with consumer(old.cluster, where, min(old.stored_ms.values()) // 1000) as client:
        with client.subscribe(OLD) as messages:
            client.send(OLD, "so that there is one to begin with")
            begun = next(iter(messages))
            with begun:
                expected = begun.offset + 1
        client.send(OLD, "and one to go on with")
        with client.subscribe(OLD) as messages:
            assert next(iter(messages)).offset == expected
