"""Each row once, whoever is killed and when: the driver, a worker, a broker.

Two brokers, a producer that goes on all the time, and the service's queries: every message into
Parquet, sums and windows into SQL, and from topic to topic through the sink, while the lake is
compacted. A life is one driver, from the start of its Java to its death at the point that the life
is about; the points before it in the list cost a worker or a broker and not the driver. Then the
next one goes on with what it finds. At the end all is compared with what brokers hold, and that
with what the producer was told.

Only the queries that a life is about run in it; the others have the more to do in a later one. All
run where deaths come by chance, and in the last life, which ends in peace.
"""

from __future__ import annotations

import json
import os
import random
import re
import signal
import sys
import threading
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import msgspec
import pyarrow.parquet as pq
import pytest
from tests.spark.mortal_driver import BEGAN, COPY, FLIGHTS, LAKE, LEGS, LETTERS, Plan

from kourou.client.producer.batches import SomeNotSent
from kourou.client.settings.client_settings import ClientSettings, ProducerSettings
from kourou.errors import KourouError, Rejected, Unavailable
from kourou.eventstore.database import sqlite_url
from kourou.model.message import Message, PullStatus
from kourou.model.topic import MessageQueue
from kourou.service.local_cluster import ClusterSettings, LocalCluster
from kourou.service.processes import Child
from kourou.sync import Client
from kourou_demo.flights import Event
from kourou_spark_etl.jobs import LATE_MIN
from kourou_spark_etl.lake_files import lake_paths
from kourou_spark_etl.queries import checkpoint_id
from kourou_spark_etl.read_model.read_model import FLIGHT_SUMS, ReadModel
from kourou_spark_etl.sink.commits import BatchCommits
from kourou_spark_etl.source.network import OpenClient

SENT, DEAD, COPIED = "flights", "%DLQ%desk", "legs"
QUEUES = 2
DRIVER = Path(__file__).with_name("mortal_driver.py")
LOOK_S = 0.1
LOOKS = 6_000
"""Of one life: ten minutes, on a machine with much else to do."""

A_LOOK = 5
"""Messages that the producer may send between two looks."""

MANY = 3_000
"""Of one batch, so that brokers need several steps to resolve it."""

AFTER_BEGIN = 1_000
"""A death by chance comes within so many messages after the driver has begun to read."""

SEED = 20_131_231
BROKERS = ("broker-a", "broker-b")
BROKER = {"mappedFileSizeCommitLog": str(1 << 24), "adminPort": "0"}
QUICK = ClientSettings(poll_name_server_interval_ms=100)
GIVES_UP = ProducerSettings(send_timeout_ms=5_000, retry_times_when_send_failed=0)

JOBS = {
    LAKE: f'job = "lake"\nsubscribe = "{SENT},{DEAD}"\ngroup = "{LAKE}"',
    LETTERS: f'job = "dead_letters"\nsubscribe = "{DEAD}"',
    FLIGHTS: f'job = "flights"\nsubscribe = "{SENT}"',
    COPY: f'job = "lake"\nsubscribe = "{SENT}"\nstarting_offsets = "earliest"',
}
"""Of the copying query only the subscription counts: no job of the service writes to a topic."""

ALL = tuple(JOBS)
OWN_SUMS = FLIGHT_SUMS[:7]
"""Of a flight alone; the others are of its plane and the weather."""

Place = tuple[str, str, int, int]


@dataclass(frozen=True, slots=True)
class Life:
    """Deaths of others, and the driver's own; without one it ends when all is done."""

    queries: tuple[str, ...] = ALL
    first: tuple[str, ...] = ()
    last: str = ""
    by_chance: str = ""


LIVES = (
    Life((LAKE, LETTERS, COPY), ("broker-resolve", "worker-halves"), "parquet-after"),
    Life((LAKE,), (), "offsets-before"),
    Life((LAKE,), (), "offsets-after"),
    Life((LAKE,), ("broker-reads",), "parquet-before"),
    Life((LETTERS,), (), "sql-before"),
    Life((LETTERS,), (), "sql-after"),
    Life((COPY,), (), "halves"),
    Life((COPY,), ("broker-halves",), "decide-before"),
    Life((COPY,), (), "decide-after"),
    Life((COPY,), (), "resolve-half"),
    Life((COPY,), (), "resolved"),
    Life((LAKE,), (), "compact-before"),
    Life((LAKE,), (), "compact-after"),
    *(Life(by_chance=victim) for victim in ("driver", "broker", "worker", "driver", "broker")),
)


class Producer:
    """Sends in bursts, as many messages as it may, and writes down what it is told."""

    def __init__(self, address: str, events: list[Event]) -> None:
        self._address = address
        self._events = events
        self._may = threading.Semaphore(0)
        self._over = False
        self.sent = 0
        self.acknowledged: dict[bytes, MessageQueue] = {}
        self.refused: set[bytes] = set()
        self.unknown: set[bytes] = set()
        self._thread = threading.Thread(target=self._work, name="producer")
        self._thread.start()

    def allow(self, count: int) -> None:
        self._may.release(count)

    def stop(self) -> None:
        self._over = True
        self._may.release()
        self._thread.join()

    def _work(self) -> None:
        with Client(self._address, settings=QUICK, producer=GIVES_UP) as client:
            while True:
                self._may.acquire()
                count = 1
                while count < 200 and self._may.acquire(blocking=False):
                    count += 1
                if self._over:
                    return
                self._send(client, [self._message(self.sent + number) for number in range(count)])
                self.sent += count

    def _message(self, number: int) -> Message:
        if number % 5 == 0:
            return Message(DEAD, b"letter %d" % number)
        event = json.loads(self._events[number % len(self._events)].body)
        return Message(SENT, msgspec.json.encode({**event, "row": number}))

    def _send(self, client: Client, messages: list[Message]) -> None:
        try:
            outcomes: Any = client.send_many(messages)
        except SomeNotSent as error:
            outcomes = error.outcomes
        for message, outcome in zip(messages, outcomes, strict=True):
            body = bytes(message.body)
            if not isinstance(outcome, KourouError):
                self.acknowledged[body] = outcome.queue
            elif isinstance(outcome, (Rejected, Unavailable)):
                self.refused.add(body)
            else:
                self.unknown.add(body)


class World:
    """Brokers, the producer, and one driver after the other."""

    def __init__(self, folder: Path, cluster: LocalCluster, producer: Producer) -> None:
        self.folder, self.cluster, self.producer = folder, cluster, producer
        self.root = folder / "etl"
        self.chance = random.Random(SEED)
        self.deaths: Counter[str] = Counter()
        self._lives = 0
        self._victims: set[str] = set()
        self._note_brokers()

    def live(self, life: Life) -> None:
        """One driver, until it has ended; fails if a point is not met, or it ends otherwise."""
        self._lives += 1
        fate = self.folder / f"fate-{self._lives}"
        fate.mkdir()
        if "resolve" in f"{life.first} {life.last}":
            self.producer.allow(MANY)
        lasting = bool(life.last or life.by_chance)
        trigger = "100 milliseconds" if lasting else "available now"
        jobs = [f'[queries.{name}]\ntrigger = "{trigger}"\n{JOBS[name]}' for name in life.queries]
        driver = self._start(
            Plan(
                self.cluster.address,
                "\n".join(jobs),
                COPIED,
                str(self.root),
                str(fate),
                str(self.folder / "pids"),
                list(life.first),
                life.last,
            )
        )
        try:
            code = self._until_it_ends(driver, life, fate)
        finally:
            end_group(driver)
        missing = {*life.first, life.last} - {""} - {path.name for path in fate.iterdir()}
        assert not missing, f"{missing}: {driver.log_tail(40)}"
        assert code == (-signal.SIGKILL if lasting else 0), driver.log_tail(40)
        self.deaths.update({*life.first, life.last} - {""})
        if life.by_chance:
            assert self._victims == {life.by_chance, "driver"}
            self.deaths.update(f"{victim} by chance" for victim in self._victims)

    def _start(self, plan: Plan) -> Child:
        name = f"driver-{self._lives}"
        path = self.folder / f"{name}.json"
        path.write_bytes(msgspec.json.encode(plan))
        return Child(name, [sys.executable, str(DRIVER), str(path)], self.folder, says_ready=False)

    def _until_it_ends(self, driver: Child, life: Life, fate: Path) -> int:
        due: list[tuple[int, str]] = []
        planned = not life.by_chance
        self._victims.clear()
        for _ in range(LOOKS):
            code = driver.wait_for_exit(LOOK_S)
            if code is not None:
                return code
            self._mend_brokers()
            if life.last or life.by_chance:
                self.producer.allow(A_LOOK)
            if not planned and (fate / BEGAN).exists():
                planned = True
                victims = dict.fromkeys([life.by_chance, "driver"])
                moments = sorted(self.chance.randrange(AFTER_BEGIN) for _ in victims)
                sent = self.producer.sent
                due = [(sent + moment, who) for moment, who in zip(moments, victims, strict=True)]
            while due and self.producer.sent >= due[0][0] and self._kill(due[0][1], driver):
                self._victims.add(due.pop(0)[1])
        raise AssertionError(f"{life} is not over: {driver.log_tail(60)}")

    def _kill(self, victim: str, driver: Child) -> bool:
        """False while there is none to be killed."""
        match victim:
            case "driver":
                os.killpg(driver.pid, signal.SIGKILL)
            case "broker":
                self.chance.choice(self.cluster.brokers).kill()
            case "worker":
                workers = workers_of(driver.pid)
                if not workers:
                    return False
                os.kill(self.chance.choice(workers), signal.SIGKILL)
        return True

    def _mend_brokers(self) -> None:
        for number, broker in enumerate(self.cluster.brokers):
            if not broker.running:
                self.cluster.start_broker(number)
                self._note_brokers()

    def _note_brokers(self) -> None:
        for name, broker in zip(BROKERS, self.cluster.brokers, strict=True):
            path = self.folder / "pids" / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(str(broker.pid))


def end_group(driver: Child) -> None:
    """Kill what is left of a driver's session: its Java, and Python that Java has started."""
    for pid in processes_of(driver.pid):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue  # it ends with Java
    driver.kill()


def processes_of(session: int) -> list[int]:
    """The processes of a session, by what the kernel says of each."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has ended meanwhile
        if int(fields[3]) == session and fields[0] != "Z":
            found.append(int(path.parent.name))
    return found


def workers_of(session: int) -> list[int]:
    """Python processes that run tasks."""
    found = []
    for pid in processes_of(session):
        try:
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            continue
        if b"pyspark.daemon" in command:
            found.append(pid)
    return found


# -- what is compared -----------------------------------------------------------------------------


def read(consumer: Any, topic: str) -> Iterator[Any]:
    """All of a topic, as a pull consumer reads it."""
    for queue in consumer.queues(topic):
        offset = 0
        while (pulled := consumer.pull(queue, offset, count_max=4_096)).status is PullStatus.FOUND:
            yield from pulled.messages
            offset = pulled.next_offset


def check_ledger(producer: Producer, stored: Mapping[Place, bytes]) -> None:
    """What brokers hold is what the producer was told."""
    bodies = Counter(stored.values())
    assert max(bodies.values()) == 1
    assert not bodies.keys() & producer.refused
    assert bodies.keys() <= producer.acknowledged.keys() | producer.unknown
    assert producer.acknowledged.keys() <= bodies.keys()


def in_lake(folder: Path) -> Counter[tuple[Place, bytes]]:
    """Every row of the lake's files."""
    found: Counter[tuple[Place, bytes]] = Counter()
    for path in lake_paths(folder):
        topic = unquote(path.parent.parent.name.removeprefix("topic="))
        columns = pq.ParquetFile(path).read(["broker", "partition", "offset", "value"])
        for row in zip(*(column.to_pylist() for column in columns.columns), strict=True):
            found[(topic, *row[:3]), row[3]] += 1
    return found


def check_tables(root: Path, stored: Mapping[Place, bytes], letters_ms: list[int]) -> None:
    """Sums and windows, against those of all that is stored, made from scratch."""
    model = ReadModel.open(sqlite_url(root / "read-model.db"))
    try:
        (letters,) = model.rows("dead_letters", LETTERS)
        told = (letters["letters"], letters["first_ms"], letters["last_ms"])
        assert told == (len(letters_ms), min(letters_ms), max(letters_ms))
        found: Counter[tuple[str, str, str]] = Counter()
        for row in model.rows("flight_delays", FLIGHTS):
            for name in OWN_SUMS:
                found[row["dimension"], row["name"], name] += row[name]
    finally:
        model.close()
    wanted: Counter[tuple[str, str, str]] = Counter()
    for (topic, *_), body in stored.items():
        if topic == SENT:
            flight = json.loads(body)
            for dimension, key in places_of(flight):
                for name, figure in figures_of(flight).items():
                    wanted[dimension, key, name] += figure
    assert found == wanted


def places_of(flight: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Where a flight counts."""
    hour = datetime.fromisoformat(flight["time"]).astimezone(UTC).hour
    route = f"{flight['origin']}-{flight['dest']}"
    return [("carrier", flight["carrier"]), ("route", route), ("hour", f"{hour:02}")]


def figures_of(flight: Mapping[str, Any]) -> dict[str, int]:
    """What it adds there, but for what only other tables know (seats, rain: the demo's test)."""
    departure, arrival = flight["departure_delay"], flight["arrival_delay"]
    figures = (
        *(1, departure is None, departure is not None, arrival is not None),
        *(arrival is not None and arrival > LATE_MIN, departure or 0, arrival or 0),
    )
    return dict(zip(OWN_SUMS, map(int, figures), strict=True))


def check_nothing_in_doubt(cluster: LocalCluster, root: Path) -> None:
    """The last batch is resolved, and no half message is open at any broker."""
    query = checkpoint_id(root / "checkpoints" / COPY)
    with OpenClient(cluster.address) as client:
        commits = BatchCommits(client.session, query, timeout_ms=60_000, coordinator="")
        known = client.run(commits.look())
    assert known.decided <= known.resolved
    assert set(known.brokers) == set(BROKERS)
    for broker in cluster.brokers:
        with urllib.request.urlopen(f"{broker.ready['admin']}/metrics", timeout=60) as answer:
            figures = answer.read().decode()
        (open_halves,) = re.findall(r"(?m)^rocketmq_half_messages\{.*\} ([0-9.]+)$", figures)
        assert float(open_halves) == 0


@pytest.mark.fault
@pytest.mark.usefixtures("java")
@pytest.mark.timeout(3_600)
def test_each_row_is_there_once_whoever_is_killed(
    tmp_path: Path,
    rounds: Callable[[int], int],
    flights_of: Callable[[int], list[Event]],
    record_property: Callable[[str, object], None],
) -> None:
    lives = LIVES[: rounds(len(LIVES))]
    settings = ClusterSettings(brokers=len(BROKERS), broker=BROKER)
    with LocalCluster(tmp_path / "cluster", settings) as cluster:
        with Client(cluster.address) as client:
            for topic in (SENT, DEAD, COPIED):
                client.admin.topics.create(topic, queues=QUEUES)
        producer = Producer(cluster.address, flights_of(400))
        try:
            world = World(tmp_path, cluster, producer)
            for life in lives:
                world.live(life)
        finally:
            producer.stop()
        world.live(Life())
        with Client(cluster.address) as client:
            consumer = client.pull_consumer()
            letters = list(read(consumer, DEAD))
            messages = [*read(consumer, SENT), *letters]
            copies = Counter(one.raw_body.decode() for one in read(consumer, COPIED))
        check_nothing_in_doubt(cluster, world.root)
    stored = {
        (one.queue.topic, one.queue.broker_name, one.queue_id, one.offset): one.raw_body
        for one in messages
    }
    check_ledger(producer, stored)
    assert in_lake(world.root / "lake" / LAKE) == Counter(stored.items())
    check_tables(world.root, stored, [one.store_timestamp for one in letters])
    sent = [body.decode() for (topic, *_), body in stored.items() if topic == SENT]
    assert copies == Counter(f"{body}#{leg}" for body in sent for leg in LEGS)
    for name, figure in {
        "deaths": dict(world.deaths),
        "stored": len(stored),
        "outcomes unknown": len(producer.unknown),
        "refused": len(producer.refused),
        "copies": copies.total(),
    }.items():
        record_property(name, figure)
        print(f"{name}: {figure}")  # noqa: T201 - the counts are results of the test
