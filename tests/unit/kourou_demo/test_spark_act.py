"""The act says what is in the files and in the table, and finds every difference."""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kourou.client.client import Client
from kourou.clock import SystemClock
from kourou.errors import Unavailable
from kourou.model.message import Message
from kourou.testing.cluster import Cluster
from kourou_demo import progress_waits as waits_module
from kourou_demo import spark_watch as watch_module
from kourou_demo.carrier_totals import SUMS
from kourou_demo.flights import Event, Flight, as_event
from kourou_demo.progress_waits import ProgressWaits
from kourou_demo.spark_act import table_line, tell_tables
from kourou_demo.spark_service import QueryFigures, SparkService
from kourou_demo.spark_watch import SparkWatch
from kourou_demo.stage import Stage
from kourou_demo.terms import TOPIC
from kourou_demo.verdict import Numbers
from kourou_spark_etl import jobs

FLIGHTS = """\
carrier,origin,tailnum,dep_delay,arr_delay,time_hour
UA,EWR,N1,5,16,2013-01-01T10:00:00Z
UA,EWR,N1,NA,NA,2013-01-01T10:00:00Z
AA,EWR,N1,-1,-4,2013-01-01T10:00:00Z
B6,EWR,N1,99,99,2013-01-01T10:00:00Z
"""
"""The last one is not played."""

UA = {"name": "UA", "label": "United Air Lines Inc."}
AA = {"name": "AA", "label": "American Airlines Inc."}
TABLE = [
    UA | dict(zip(SUMS, (1, 0, 1, 1, 1, 5, 16, 7, 0), strict=True)),
    UA | dict(zip(SUMS, (1, 1, 0, 0, 0, 0, 0, 7, 0), strict=True)),
    AA | dict(zip(SUMS, (1, 0, 1, 1, 0, -1, -4, 7, 0), strict=True)),
]
ROWS = 3


def events() -> list[Event]:
    flights = [
        Flight(row, "2013-01-01T10:00:00Z", "2013-01-01", carrier, 1, "EWR", "IAH", 1_400)
        for row, carrier in enumerate(("UA", "UA", "AA"))
    ]
    return [as_event(one, msgspec.json.encode(one)) for one in flights]


@dataclass
class Service:
    """What the act asks of the service."""

    lake_folder: Path
    table: list[dict[str, Any]]
    figures: QueryFigures
    ended: str = ""
    answers: bool = True
    asked: list[dict[str, str]] = field(default_factory=list)

    async def wait_until_ready(self, waits: ProgressWaits) -> bool:
        return not self.ended

    def queries(self) -> dict[str, QueryFigures]:
        return {"lake": self.figures, "flights": self.figures}

    def table_rows(self, **conditions: str) -> Iterator[dict[str, Any]]:
        if not self.answers:
            raise Unavailable("the Spark service does not answer")
        self.asked.append(conditions)
        yield from self.table


@dataclass
class KeptView:
    """A view that remembers what it was told."""

    view: list[str] = field(default_factory=list)
    rows: list[Sequence[str]] = field(default_factory=list)

    def chapter(self, title: str) -> None:
        self.view.append(title)

    def note(self, text: str) -> None:
        self.view.append(text)

    def table(self, title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        self.view.append(title)
        self.rows += rows


class Play:
    """The act, with what Spark would have made."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.cluster = cluster
        self.view = KeptView()
        self.numbers = Numbers(events=ROWS)
        self.lake: list[tuple[str, bytes]] = []
        self.service = Service(folder / "lake", TABLE, QueryFigures(ROWS, 0, "running"))
        self.sent: dict[str, bytes] = {}

    async def send(self, client: Client) -> None:
        await client.admin.topics.create(TOPIC, queues=2)
        results = await client.send_many([Message(TOPIC, one.body) for one in events()])
        self.sent = {
            result.message_id: event.body for result, event in zip(results, events(), strict=True)
        }
        self.numbers.published = len(self.sent)
        self.lake = list(self.sent.items())
        # The broker is that of all tests, so others may have sent before.
        stats = await client.admin.topics.stats(TOPIC)
        ends = sum(queue.max_offset for queue in stats.values())
        self.service.figures = replace(self.service.figures, ends=ends)

    def write_lake(self) -> None:
        """As Spark does it: files, and a log that names those that count."""
        file = self.service.lake_folder / "incoming" / "topic=flights" / "part-0.parquet"
        file.parent.mkdir(parents=True)
        ids, bodies = zip(*self.lake, strict=True)
        pq.write_table(pa.table({"message_id": ids, "value": bodies}), file)
        log = self.service.lake_folder / "incoming" / "_spark_metadata" / "0"
        log.parent.mkdir()
        entry = {"path": f"file://{file}", "size": file.stat().st_size, "action": "add"}
        log.write_text(f"v1\n{json.dumps(entry)}")

    async def go(self, client: Client) -> list[str]:
        """Play it; what the verdict says of Spark."""
        clock = SystemClock()
        waits = ProgressWaits(clock, self.numbers.faults)
        stage: Any = Stage(
            self.cluster.address,
            self.service.lake_folder,
            None,  # type: ignore[arg-type]  # this act starts no process
            client,
            self.view,  # type: ignore[arg-type]  # as far as it is used here
            clock,
            waits,
            self.numbers,
            [],
            [],
        )
        service: Any = self.service
        assert all(hasattr(SparkService, name) for name in ("queries", "table_rows", "ended"))
        watch = SparkWatch(service, clock)
        await watch.wait_until_runs(waits)
        try:
            await tell_tables(stage, watch, events(), self.sent)
        finally:
            watch.close()
        return self.numbers.spark.disagreements(self.numbers.published) + self.numbers.faults


@pytest.fixture
def play(kourou_broker: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Play:
    data = tmp_path / "data"
    data.mkdir()
    with zipfile.ZipFile(data / "flights.csv.zip", "w") as archive:
        archive.writestr("flights.csv", FLIGHTS)
    (data / "planes.csv").write_text("tailnum,seats\nN1,7\n")
    (data / "weather.csv").write_text("origin,time_hour,precip\n")
    monkeypatch.setattr(jobs, "flight_data_folder", lambda: data)
    monkeypatch.setattr(waits_module, "LOOK_S", 0)
    monkeypatch.setattr(watch_module, "LOOK_S", 0)
    return Play(kourou_broker, tmp_path)


async def test_rows_and_totals_that_agree_are_told(play: Play) -> None:
    async with Client(play.cluster.address, group="tower") as client:
        await play.send(client)
        play.write_lake()
        assert await play.go(client) == []
    spark = play.numbers.spark
    assert (spark.rows, spark.duplicates, spark.aggregates_match) == (ROWS, 0, True)
    assert play.service.asked == [{"dimension": "carrier"}]
    assert "3 rows in 1 Parquet files, 0 MB: 0 duplicates, 0 missing, 0 wrong" in play.view.view
    assert [[cell.strip() for cell in row] for row in play.view.rows] == [
        ["United Air Lines", "2", "1", "100.0 %", "+5.0", "+16.0"],
        ["American Airlines", "1", "0", "0.0 %", "-1.0", "-4.0"],
    ]
    assert play.view.view[-1] == "18 of 18 totals agree with pandas"


async def test_a_row_that_is_there_twice_is_found(play: Play) -> None:
    async with Client(play.cluster.address, group="tower") as client:
        await play.send(client)
        play.lake.append(play.lake[1])
        play.write_lake()
        assert await play.go(client) == [
            "Parquet has 4 rows of 3 flights",
            "Parquet has 1 duplicate rows",
        ]


async def test_a_row_that_is_missing_is_found(play: Play) -> None:
    async with Client(play.cluster.address, group="tower") as client:
        await play.send(client)
        del play.lake[1]
        play.write_lake()
        assert await play.go(client) == [
            "Parquet has 2 rows of 3 flights",
            "Parquet lacks 1 flights",
        ]


async def test_a_row_that_is_another_one_is_found(play: Play) -> None:
    async with Client(play.cluster.address, group="tower") as client:
        await play.send(client)
        play.lake[1] = (play.lake[1][0], b"{}")
        play.write_lake()
        assert await play.go(client) == ["1 rows of Parquet differ from what was sent"]


async def test_a_total_that_is_wrong_is_found(play: Play) -> None:
    async with Client(play.cluster.address, group="tower") as client:
        await play.send(client)
        play.write_lake()
        play.service.table = [TABLE[0] | {"late": 2}, *TABLE[1:]]
        assert await play.go(client) == ["17 of 18 totals by carrier agree with pandas"]
        assert not play.numbers.spark.aggregates_match


async def test_flights_that_came_too_late_are_a_fault(play: Play) -> None:
    async with Client(play.cluster.address, group="tower") as client:
        await play.send(client)
        play.write_lake()
        play.service.figures = replace(play.service.figures, late=2)
        assert await play.go(client) == [
            "2 flights arrived after the watermark of lake",
            "2 flights arrived after the watermark of flights",
        ]


async def test_a_service_that_has_ended_is_told(play: Play) -> None:
    async with Client(play.cluster.address, group="tower") as client:
        await play.send(client)
        play.service.ended = "the Spark service was killed by SIGKILL"
        assert (await play.go(client))[-1] == play.service.ended


async def test_a_service_that_ends_in_the_act_is_told(play: Play) -> None:
    async with Client(play.cluster.address, group="tower") as client:
        await play.send(client)
        play.write_lake()
        play.service.answers = False
        assert (await play.go(client))[-1] == "the Spark service does not answer"


async def test_a_query_that_does_not_come_on_is_told_with_its_error(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kourou_demo.spark_act.SPARK_STUCK_S", 0)
    async with Client(play.cluster.address, group="tower") as client:
        await play.send(client)
        play.service.figures = replace(play.service.figures, ends=0, error="no disk")
        assert (await play.go(client))[-3:] == [
            "Spark: no progress for 0 s",
            "the query lake: no disk",
            "the query flights: no disk",
        ]


def test_a_carrier_without_any_flight_that_left_has_no_mean() -> None:
    line = table_line("Mesa Airlines Corporation", dict.fromkeys(SUMS, 0) | {"flights": 1_234})
    assert [re.sub(" +", " ", cell).strip() for cell in line] == [
        *("Mesa Airlines", "1,234", "0", "0.0 %", "+0.0", "+0.0"),
    ]
