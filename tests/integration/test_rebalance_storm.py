"""Rebalance storm: a member joins or leaves every second for a minute, and messages keep coming.

In order: no two handlers of one queue run at once, whoever's they are; each queue's messages are
consumed in the order sent, every one of them, and none twice, for nobody dies here. When
connections are cut as well, a queue may go back to where it was committed, and never leaps.
Without order: every message is consumed.

The brokers and the members are real, their time is a test's: a second of the storm takes a tenth.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from kourou import ConsumerSettings, MessageQueue, ReceivedMessage
from kourou.model.subscription import ConsumeFromWhere
from kourou.sync import Client
from kourou.testing.cluster import Cluster

SECONDS = 60
MEMBERS_MAX = 6
KEYS = 24
MESSAGES_A_SECOND = 24
PATIENCE_S = 60
SLOW_S = 3
"""How many seconds of the storm a slow handler takes."""


class Book:
    """What handlers of all members have done."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.running: dict[MessageQueue, str] = {}
        self.next: dict[MessageQueue, int] = defaultdict(int)
        self.done: set[str] = set()
        """Bodies: one that failed may come by its first queue and again by that of retries."""

        self.keys: dict[str, list[int]] = defaultdict(list)
        self.wrong: list[str] = []
        self.rewinds = 0
        self.failures = 0
        self.changed = threading.Event()

    def begin(self, message: ReceivedMessage, member: str) -> None:
        with self._lock:
            other = self.running.get(message.queue)
            if other is not None:
                self.wrong.append(f"{member} begins {message} while {other} is at its queue")
            self.running[message.queue] = member

    def end(self, message: ReceivedMessage, *, consumed: bool) -> None:
        queue, offset = message.queue, message.offset
        with self._lock:
            self.running.pop(queue, None)
            if not consumed:
                self.failures += 1
                return
            expected = self.next[queue]
            if offset > expected:
                self.wrong.append(f"{message} is consumed, and {expected} was not")
            self.rewinds += offset < expected
            self.next[queue] = offset + 1
            body = message.body.decode()
            self.done.add(body)
            key, number = body.split(":")
            self.keys[key].append(int(number))
        self.changed.set()

    @property
    def consumed(self) -> int:
        with self._lock:
            return len(self.done)


class Storm:
    """Members that come and go. `ordered` decides how they consume."""

    def __init__(self, cluster: Cluster, topic: str, seed: int, *, ordered: bool) -> None:
        self.cluster = cluster
        self.topic = topic
        self.book = Book()
        self.chance = random.Random(seed)
        self.ordered = ordered
        self.members: list[tuple[str, Client]] = []
        self.second = 0
        self.joined = 0
        self.calm = threading.Event()
        self._gates: dict[int, threading.Event] = defaultdict(threading.Event)
        self._leaving: list[Future[None]] = []
        self._pool = ThreadPoolExecutor(MEMBERS_MAX * 2)
        self.sent: Counter[str] = Counter()

    def join(self) -> None:
        self.joined += 1
        name = f"member {self.joined}"
        settings = ConsumerSettings(
            consumer_group="storm",
            consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
            consume_threads_min=1,
            consume_threads_max=4,
            redelivery_delay_ms=100,
        )
        client = self.cluster.client(consumer=settings).open()
        client.listen(self.topic, self.handler(name), ordered=self.ordered).start()
        self.members.append((name, client))

    def leave(self) -> None:
        _, client = self.members.pop(self.chance.randrange(len(self.members)))
        self._leaving.append(self._pool.submit(client.close))  # it waits for its handlers

    def handler(self, name: str) -> Callable[[ReceivedMessage], None]:
        chance = random.Random(f"{name}{self.chance.random()}")
        book = self.book

        def handle(message: ReceivedMessage) -> None:
            if self.ordered:
                book.begin(message, name)
            fails = False
            try:
                fate = chance.random()
                if fate < 0.02:
                    self._gates[self.second + SLOW_S].wait(0 if self.calm.is_set() else 30)
                fails = fate > 0.98
                if fails:
                    raise RuntimeError("not now")
            finally:
                book.end(message, consumed=not fails)

        return handle

    def send(self, producer: Client) -> None:
        for _ in range(MESSAGES_A_SECOND):
            key = f"key {self.chance.randrange(KEYS)}"
            number = self.sent[key]
            self.sent[key] += 1
            producer.send(self.topic, f"{key}:{number}", order_key=key)

    def pass_second(self) -> None:
        self.cluster.clock.advance(1)
        self.second += 1
        self._gates[self.second].set()

    def end(self) -> None:
        """No more changes: everything has to be consumed by those who are there."""
        self.calm.set()
        for gate in list(self._gates.values()):
            gate.set()
        total = sum(self.sent.values())
        late = time.monotonic() + PATIENCE_S
        while self.book.consumed < total and time.monotonic() < late:
            self.book.changed.clear()
            self.cluster.clock.advance(1)
            self.book.changed.wait(0.05)
        for left in self._leaving:
            left.result(60)

    def close(self) -> None:
        self.calm.set()
        for gate in list(self._gates.values()):
            gate.set()
        for _, client in self.members:
            client.close()
        self._pool.shutdown()


@pytest.fixture
def storm(tmp_path: Path) -> Iterator[Callable[..., Storm]]:
    made: list[Storm] = []
    with Cluster(tmp_path, brokers=2) as cluster:

        def make(seed: int, *, ordered: bool) -> Storm:
            topic = cluster.create_topic(queues=4)
            made.append(Storm(cluster, topic, seed, ordered=ordered))
            return made[-1]

        yield make
        for one in made:
            one.close()


def blow(storm: Storm, seconds: int, each_second: Callable[[], None] = lambda: None) -> None:
    """The storm: a change a second."""
    with storm.cluster.client() as producer:
        storm.join()
        for _ in range(seconds):
            few, many = len(storm.members) <= 1, len(storm.members) >= MEMBERS_MAX
            if few or (not many and storm.chance.random() < 0.5):
                storm.join()
            else:
                storm.leave()
            storm.send(producer)
            each_second()
            storm.pass_second()
        storm.end()


@pytest.mark.fault
@pytest.mark.feature("F178", "F179", "F202", "F203", "F228")
def test_in_order(storm, rounds) -> None:
    one = storm(1, ordered=True)
    blow(one, rounds(SECONDS))
    book = one.book
    assert book.wrong == []
    assert book.rewinds == 0, "nobody died, so nothing comes twice"
    assert {key: len(numbers) for key, numbers in book.keys.items()} == dict(one.sent)
    for key, numbers in book.keys.items():
        assert numbers == sorted(numbers), f"{key} is out of order"


@pytest.mark.fault
@pytest.mark.feature("F178", "F202")
def test_in_order_while_connections_and_brokers_break(storm, rounds) -> None:
    """A broker that comes back knows whose its queues were: their handlers may still run."""
    one = storm(2, ordered=True)
    chaos, names = one.cluster.chaos, one.cluster.brokers

    def fault() -> None:
        fate, broker = one.chance.random(), one.chance.choice(names)
        if fate < 0.3:
            chaos.kill(broker)
            one.cluster.clock.advance(0.2)
            chaos.restart(broker)
        elif fate < 0.6:
            chaos.cut_connections(broker)

    blow(one, rounds(SECONDS), fault)
    assert one.book.wrong == []
    assert {key: len(set(numbers)) for key, numbers in one.book.keys.items()} == dict(one.sent)


@pytest.mark.fault
@pytest.mark.feature("F201", "F202", "F228")
def test_without_order(storm, rounds) -> None:
    one = storm(3, ordered=False)
    blow(one, rounds(SECONDS))
    assert {key: len(set(numbers)) for key, numbers in one.book.keys.items()} == dict(one.sent)
