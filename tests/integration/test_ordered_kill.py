"""kill -9 of a member that consumes in order: its queues wait until its locks lapse, and go on.

The member is a process of its own; the broker's time is a test's. Nobody takes a dead member's
queue before the broker gives up its lock a minute later: the broker cannot know that it is dead.
Then the queue goes on where it was committed, in order, with nothing lost.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kourou import ConsumerSettings, MessageQueue
from kourou.model.subscription import ConsumeFromWhere
from kourou.sync import Client
from kourou.testing.cluster import Cluster

QUEUES = 4
EACH = 20
LAPSED_S = 60

MEMBER = """
import sys
from kourou import ClientSettings, ConsumerSettings
from kourou.sync import Client

def handler(message):
    # One write a line: handlers of several queues print at once.
    print(f"{message.queue_id} {message.offset}\\n", end="", flush=True)

settings = ClientSettings(persist_consumer_offset_interval_ms=50)
with Client(sys.argv[1], settings=settings, consumer=ConsumerSettings(consumer_group="g")) as mq:
    with mq.listen("T", handler, ordered=True):
        print("here\\n", end="", flush=True)
        sys.stdin.read()
"""


class Member:
    """The process, and what it consumed: (queue id, offset)."""

    def __init__(self, address: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", MEMBER, address],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.consumed: list[tuple[int, int]] = []

    def wait(self, count: int) -> None:
        """Read until it has consumed so many; 0 waits until it is there."""
        assert self.process.stdout is not None
        while len(self.consumed) < count or not count:
            line = self.process.stdout.readline().split()
            assert line, "it ended"
            if line == ["here"]:
                return
            self.consumed.append((int(line[0]), int(line[1])))

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        with self.process.stdin, self.process.stdout:
            lines = [line.split() for line in self.process.stdout]
        self.consumed += [(int(line[0]), int(line[1])) for line in lines]


@contextmanager
def member(address: str) -> Iterator[Member]:
    one = Member(address)
    try:
        one.wait(0)
        yield one
    finally:
        if one.process.poll() is None:
            one.kill()


class Survivor:
    """A member in this process."""

    def __init__(self) -> None:
        self.consumed: list[tuple[int, int]] = []
        self.changed = threading.Condition()

    def handle(self, message) -> None:
        with self.changed:
            self.consumed.append((message.queue_id, message.offset))
            self.changed.notify_all()


def send(mq: Client, first: int, count: int) -> None:
    for queue_id in range(QUEUES):
        queue = MessageQueue("T", "broker-a", queue_id)
        for number in range(first, first + count):
            mq.send("T", b"%d" % number, queue=queue)


@pytest.mark.fault
@pytest.mark.feature("F178", "F179", "F203")
def test_a_dead_members_queues_go_on_when_its_locks_lapse(tmp_path: Path, rounds) -> None:
    survivor, dead = Survivor(), []
    settings = ConsumerSettings(
        consumer_group="g", consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    )
    with Cluster(tmp_path) as cluster, cluster.client(consumer=settings) as mq:
        cluster.create_topic("T", queues=QUEUES)
        with mq.listen("T", survivor.handle, ordered=True) as listener:
            sent = 0
            for _ in range(rounds(10)):
                with member(cluster.address) as other:
                    dead.append(other)
                    while len(listener.locked) > QUEUES // 2:
                        cluster.clock.advance(0.1)
                    send(mq, sent, EACH)
                    other.wait(EACH)
                    ours = set(listener.locked)
                    other.kill()
                    send(mq, sent + EACH, EACH)
                    sent += 2 * EACH
                    cluster.clock.advance(LAPSED_S - 20)
                    assert set(listener.locked) == ours, "nobody may have them yet"
                    cluster.clock.advance(22)
                    while len(listener.locked) < QUEUES:
                        cluster.clock.advance(1)
            wanted = {(queue_id, offset) for queue_id in range(QUEUES) for offset in range(sent)}
            everything = wanted - {place for one in dead for place in one.consumed}
            with survivor.changed:
                assert survivor.changed.wait_for(
                    lambda: everything <= set(survivor.consumed), timeout=60
                )
    for consumed in (survivor.consumed, *(one.consumed for one in dead)):
        by_queue: dict[int, list[int]] = defaultdict(list)
        for queue_id, offset in consumed:
            by_queue[queue_id].append(offset)
        for queue_id, offsets in by_queue.items():
            assert offsets == sorted(set(offsets)), f"queue {queue_id} is out of order"
