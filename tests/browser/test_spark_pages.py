"""The pages of Spark, given what spark-etl itself tells: its own counters, its own read model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from kourou.eventstore.database import sqlite_url
from kourou.service.admin_http import AdminHttp, AdminPages
from kourou_rigs.console import ConsoleHere
from kourou_spark_etl.progress import BatchProgress
from kourou_spark_etl.read_model.read_model import (
    QueryBatch,
    ReadModel,
    ask,
    bucket_of,
    list_tables,
)
from kourou_spark_etl.runner import QueryCounters, QueryState

BEGAN_MS = 1_795_324_000_000
BEGAN = datetime.fromtimestamp(BEGAN_MS / 1_000, UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z")
DELIVERED: Mapping[str, Any] = {
    "window_ms": BEGAN_MS,
    "stage": "delivery",
    "topic": "departures",
    "consumer_group": "board",
    "bucket": bucket_of(37),
    "samples": 3,
    "sum_ms": 81,
    "max_ms": 37,
}


def counted() -> QueryCounters:
    """A query that is at work, one that has failed, one that nobody has begun."""
    states = [QueryState(name, name) for name in ("latency", "backlog", "lake")]
    counters = QueryCounters(states)
    for state in states[:2]:
        state.starting()
        state.running()
    for number in (0, 1):
        counters.batch(BatchProgress("latency", "id", number, 600, BEGAN_MS, 250))
    states[1].failed("the name server is away", 0)
    return counters


@pytest.fixture(scope="module")
def console(scene: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleHere]:
    """A console that is told of a pipeline."""
    folder: Path = tmp_path_factory.mktemp("spark")
    model = ReadModel.open(sqlite_url(folder / "read-model.db"))
    model.write(QueryBatch("latency", "id", 0, BEGAN_MS), {"latency": [DELIVERED]})
    counters = counted()

    async def question(path: str, asked: Mapping[str, str]) -> Any:
        if path == "/tables":
            return list_tables(model.database)
        return ask(model.database, path.removeprefix("/tables/"), asked)

    pages = AdminPages(
        healthy=lambda: "",
        ready=lambda: "",
        metrics=lambda: b"",
        config=lambda: "",
        statistics=lambda: {"master": "local[2]", "queries": counters.statistics()},
        questions=question,
    )
    http = AdminHttp("127.0.0.1", 0, pages)
    scene.console.run(http.start())
    with ConsoleHere(scene.cluster, spark_etl_address=http.address) as here:
        yield here
    scene.console.run(http.stop())
    model.close()


@pytest.fixture
def walk(walking: Any, console: ConsoleHere) -> Any:
    """A tab at that console."""
    return walking(console.address)


def row(table: Any, name: str) -> Any:
    """The cells of the row that has this name."""
    rows = table.get_by_role("row")
    return rows.filter(has=table.page.get_by_role("cell", name=name, exact=True)).first.locator(
        "td"
    )


def test_queries_tell_what_they_did(walk) -> None:
    page = walk.to("spark")
    table = page.get_by_role("table", name="Queries")
    cells = row(table, "latency")
    view = cells.all_inner_texts()
    assert view[2:6] == ["running", "2", "1,200", "1"]
    assert view[7:] == ["250 ms", "none"]
    expect(cells.nth(6).locator("time")).to_have_attribute("datetime", BEGAN)
    view = row(table, "backlog").all_inner_texts()
    assert view[2:5] == ["failed", "0", "0"]
    assert view[8] == "the name server is away"
    unknown = row(table, "lake").locator(".missing-value")
    expect(unknown).to_have_count(3)  # nothing of a last batch, rather than a 0
    assert walk.violations() == ""


def test_a_table_names_its_columns(walk) -> None:
    page = walk.to("spark")
    tables = page.get_by_role("table", name="Tables")
    cells = row(tables, "dead_letters").all_inner_texts()
    assert cells[1].startswith("query, consumer_group, reason, origin_topic, letters")
    tables.get_by_role("link", name="latency", exact=True).click()
    expect(page.locator("main h1")).to_have_text("Table latency")


def test_durations_are_no_moments(walk) -> None:
    """Names of both end in `_ms`."""
    page = walk.to("spark/latency")
    table = page.get_by_role("table", name="Rows")
    titles = table.get_by_role("columnheader").all_inner_texts()
    cells = dict(zip(titles, table.locator("tbody td").all(), strict=True))
    assert (cells["sum_ms"].inner_text(), cells["max_ms"].inner_text()) == ("81 ms", "37 ms")
    expect(cells["window_ms"].locator("time")).to_have_attribute("datetime", BEGAN)
    walk.to("spark/latency_percentiles")
    expect(table).to_contain_text("27 ms")
    expect(table.locator("time")).to_have_count(0)
    assert walk.violations() == ""


def test_a_condition_that_is_refused_can_be_corrected(walk) -> None:
    walk.refusals = {400}
    page = walk.to("spark/latency")
    where = page.get_by_label("Where")
    show = page.get_by_role("button", name="Show", exact=True)
    where.fill("gate=B7")
    show.click()
    expect(page.get_by_role("alert")).to_contain_text("has no column 'gate'")
    expect(where).to_have_value("gate=B7")
    where.fill("topic=departures")
    show.click()
    expect(page.get_by_role("table", name="Rows")).to_contain_text("board")
    expect(page.get_by_role("alert")).to_have_count(0)
