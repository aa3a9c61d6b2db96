"""The demo's last act: every flight is a Parquet row, and a table has the delays by carrier.

The service has been running since before the first flight was sent. Its results are read through
public interfaces: the Parquet files with pyarrow, the table over HTTP.

State: soft.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kourou.errors import KourouError, Unavailable
from kourou_demo.carrier_totals import LATE_MIN, add_up, agreeing, by_pandas
from kourou_demo.flights import FLIGHTS_IN_ALL, Event
from kourou_demo.lake_rows import LakeCount, compare, read_rows
from kourou_demo.spark_service import LAKE, SPARK_STUCK_S, SparkService
from kourou_demo.spark_watch import SparkWatch
from kourou_demo.stage import Stage
from kourou_demo.terms import TOPIC

_FIRM = re.compile(r" (Inc\.|Co\.|Corporation)$")


@dataclass(frozen=True, slots=True)
class ProtocolServers:
    """The read model's totals by carrier, the carriers' names, and the totals of pandas."""

    totals: Mapping[str, Mapping[str, int]]
    names: Mapping[str, str]
    wanted: Mapping[str, Mapping[str, int]]


async def tell_tables(
    stage: Stage, watch: SparkWatch, events: Sequence[Event], sent: Mapping[str, bytes]
) -> None:
    """Run this act and record the counts. `sent` has the bodies of all flights by message ID."""
    stage.view.chapter(
        f"act 5, Spark: {len(sent):,} flights as rows of Parquet, delays by carrier as tables"
    )
    if not await _drained(stage, watch):
        return
    try:
        await _count_rows(stage, watch.service, sent)
        protocols = await asyncio.to_thread(_protocols, watch.service, events)
    except Unavailable as error:
        stage.numbers.faults.append(error.message)
        return
    numbers = stage.numbers.spark
    numbers.totals_right, numbers.totals = agreeing(protocols.totals, protocols.wanted)
    _show(stage, protocols)
    stage.view.note(f"{numbers.totals_right} of {numbers.totals} totals agree with pandas")


async def _drained(stage: Stage, watch: SparkWatch) -> bool:
    """Wait until both queries have reached the ends of the queues; False if they do not."""
    if not watch.follows:
        stage.numbers.faults += filter(None, [watch.service.ended])
        return False
    goal = sum(
        queue.max_offset for queue in (await stage.client.admin.topics.stats(TOPIC)).values()
    )

    def done() -> bool:
        return watch.reached >= goal or bool(watch.service.ended)

    reached = await stage.waits.wait("Spark", lambda: watch.moved, done, SPARK_STUCK_S)
    for name, query in watch.queries.items():
        if query.late:
            stage.numbers.faults.append(
                f"{query.late:,} flights arrived after the watermark of {name}"
            )
        if not reached and query.error:
            stage.numbers.faults.append(f"the query {name}: {query.error}")
    if ended := watch.service.ended:
        stage.numbers.faults.append(ended)
        return False
    return reached


async def _count_rows(stage: Stage, service: SparkService, sent: Mapping[str, bytes]) -> None:
    """Compare the lake with the messages that were sent."""
    from kourou_spark_etl.lake_files import lake_paths

    def read() -> tuple[LakeCount, int, int]:
        paths = lake_paths(service.lake_folder)
        size = sum(path.stat().st_size for path in paths)
        return compare(sent, read_rows(paths)), len(paths), size

    try:
        count, files, size = await asyncio.to_thread(read)
    except (KourouError, OSError) as error:
        raise Unavailable(f"lake {LAKE} cannot be read: {error}") from error
    numbers = stage.numbers.spark
    numbers.rows, numbers.duplicates = count.rows, count.duplicates
    numbers.missing, numbers.strange = count.missing, count.strange
    stage.view.note(
        f"{count.rows:,} rows in {files} Parquet files, {size / 1e6:.0f} MB: "
        f"{count.duplicates} duplicates, {count.missing} missing, {count.strange} wrong"
    )


def _protocols(service: SparkService, events: Sequence[Event]) -> ProtocolServers:
    from kourou_spark_etl.jobs import flight_data_folder

    rows = list(service.table_rows(dimension="carrier"))
    played = None if len(events) == FLIGHTS_IN_ALL else [event.row for event in events]
    return ProtocolServers(
        add_up(rows),
        {row["name"]: row["label"] for row in rows},
        by_pandas(flight_data_folder(), played),
    )


def _show(stage: Stage, protocols: ProtocolServers) -> None:
    ordered = sorted(protocols.totals.items(), key=lambda item: -item[1]["flights"])
    stage.view.table(
        f"delays by carrier; late is over {LATE_MIN} minutes, delays are means in minutes",
        ("carrier", "flights", "cancelled", "late", "departing", "arriving"),
        [table_line(protocols.names[carrier], total) for carrier, total in ordered],
    )


def table_line(name: str, total: Mapping[str, int]) -> tuple[str, ...]:
    """A carrier's row for the table; means are over the flights that departed and arrived."""
    departed, arrived = max(1, total["departed"]), max(1, total["arrived"])
    return (
        _FIRM.sub("", name),
        f"{total['flights']:>7,}",
        f"{total['cancelled']:>9,}",
        f"{100 * total['late'] / arrived:4.1f} %",
        f"{total['departure_delay_min'] / departed:>+9.1f}",
        f"{total['arrival_delay_min'] / arrived:>+8.1f}",
    )
