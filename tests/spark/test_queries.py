"""Queries as the service starts them: from topics through Spark's streams into tables."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kourou import DeadLetter
from kourou.client.settings.client_settings import ConsumerSettings, ProducerSettings
from kourou.clock import SystemClock
from kourou.eventstore.database import sqlite_url
from kourou.model.subscription import ConsumeFromWhere
from kourou.testing.cluster import Cluster
from kourou_spark_etl.data_source import FORMAT
from kourou_spark_etl.job_file import read_jobs
from kourou_spark_etl.progress import BatchProgress
from kourou_spark_etl.queries import Bench, start
from kourou_spark_etl.read_model.read_model import ReadModel, ask
from kourou_spark_etl.runner import BatchListener
from kourou_spark_etl.session import stream_session

WAIT_S = 240
TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b716920333{}-01"


class Site:
    """A cluster, a session, a read model, and queries that run once over what there is."""

    def __init__(self, spark: Any, cluster: Cluster, folder: Path) -> None:
        self.cluster = cluster
        self.model = ReadModel.open(sqlite_url(folder / "read-model.db"))
        self.written: list[tuple[str, int | None]] = []
        self.done: list[BatchProgress] = []
        self._heard = threading.Condition()
        self.listener = BatchListener({"q": list, "lags": list}, self._hear)
        self.bench = Bench(
            spark,
            cluster.address,
            folder,
            self.model,
            SystemClock(),
            traced=True,
            written=lambda *of: self.written.append(of),
        )

    def run(self, text: str, name: str = "q") -> None:
        (spec,) = read_jobs(f'[queries.{name}]\ntrigger = "available now"\n{text}')
        query = start(spec, self.bench)
        try:
            assert query.awaitTermination(WAIT_S)
        finally:
            query.stop()
            for close in self.bench.closing:
                close()
            self.bench.closing.clear()

    def contexts(self) -> set[str]:
        """What batches have observed; Spark tells of a batch in its own time."""
        with self._heard:
            assert self._heard.wait_for(lambda: len(self.done) >= len(self.written), WAIT_S)
            return {context for one in self.done for context in one.contexts}

    def _hear(self, done: BatchProgress) -> None:
        with self._heard:
            self.done.append(done)
            self._heard.notify_all()

    def rows(self, table: str, **question: str) -> list[Mapping[str, Any]]:
        found = ask(self.model.database, table, question)
        assert found is not None
        return list(found["rows"])


@pytest.fixture
def site(spark: Any, kourou_cluster: Callable[..., Cluster], tmp_path: Path) -> Iterator[Site]:
    made = Site(spark, kourou_cluster(1), tmp_path)
    spark.streams.addListener(made.listener)
    yield made
    spark.streams.removeListener(made.listener)
    made.model.close()


def refused(_message: Any) -> None:
    raise DeadLetter("not a number")


def test_dead_letters_and_backlogs_reach_their_tables(site: Site) -> None:
    with site.cluster.client("billing") as client:
        for number in range(3):
            client.send("payments", f"{number}", properties={"traceparent": TRACE.format(number)})
        with client.listen("payments", refused) as listener:
            while listener.counts.sent_back < 3:
                site.cluster.clock.advance(0)
            listener.commit()
        client.send("payments", "later")
        site.run('job = "dead_letters"')
        (row,) = site.rows("dead_letters")
        told = (row["consumer_group"], row["reason"], row["origin_topic"], row["letters"])
        assert told == ("billing", "not a number", "payments", 3)
        site.run('job = "dead_letters"')  # nothing is new
        assert site.rows("dead_letters") == [row]
        assert len(site.contexts()) == 3

        site.run('job = "backlog"\n[queries.lags.options]\ngroups = "billing"', "lags")
    samples = {row["topic"]: row for row in site.rows("backlog")}
    assert samples["payments"]["lag"] == 1
    assert samples["payments"]["end_offsets"] == 4
    assert samples["payments"]["growth_per_s"] is None, "there is no sample before"


def test_latency_is_joined_over_streams_and_adds_up(site: Site) -> None:
    done = threading.Semaphore(0)
    producer = ProducerSettings(producer_group="shop", message_trace=True)
    consumer = ConsumerSettings(
        consumer_group="post",
        message_trace=True,
        consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
    )
    job = 'job = "latency"\nsubscribe = "parcels"\nstarting_offsets = "earliest"'
    for round_number in (1, 2):
        with site.cluster.client("shop", producer=producer, consumer=consumer) as client:
            client.send("parcels", "a vase")
            with client.listen("parcels", lambda message: done.release()):
                assert done.acquire(timeout=60)
        site.run(job)
        stages = {row["stage"]: row for row in site.rows("latency_percentiles", topic="parcels")}
        assert set(stages) == {"send", "store", "wait", "handle"}
        assert {row["samples"] for row in stages.values()} == {round_number}
        assert stages["send"]["consumer_group"] == "shop"
        assert stages["wait"]["consumer_group"] == stages["handle"]["consumer_group"] == "post"


def test_flights_come_in_batches_and_late(site: Site, flights_of: Callable[[int], Any]) -> None:
    events = flights_of(900)
    topic = site.cluster.create_topic("flights", queues=2)
    job = f'job = "flights"\nsubscribe = "{topic}"\nmax_offsets_per_trigger = 200'
    with site.cluster.client() as client:
        for some in (events[100:], events[:100]):
            client.send_many(topic, [event.body for event in some])
            site.run(job)
    wanted = Counter(event.tag for event in events)
    found: Counter[str] = Counter()
    for row in site.rows("flight_delays", dimension="carrier", limit="1000"):
        found[row["name"]] += row["flights"]
    assert found == wanted, "what comes late, and within the watermark, counts in its window"
    assert len(site.model.batches()) >= 5


def test_a_stream_writes_to_the_environment_of_its_own_session_only(site: Site, spark: Any) -> None:
    """Spark writes to that map, without a lock, whenever a stream starts."""

    def environment(session: Any) -> dict[str, str]:
        sources = session._jsparkSession.sessionState().dataSourceManager()
        return dict(sources.lookupDataSource(FORMAT).dataSourceCls().envVars())

    mine, other = stream_session(spark), stream_session(spark)
    before = environment(other)
    site.bench = replace(site.bench, spark=mine)
    with site.cluster.client() as client:
        topic = site.cluster.create_topic()
        client.send(topic, b"one")
    site.run(f'job = "lake"\nsubscribe = "{topic}"')
    assert environment(mine).keys() > before.keys()
    assert environment(other) == before
