"""Batches in SQL: each once, whatever Spark runs again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kourou.errors import BadRequest, Corrupt, Rejected
from kourou.eventstore.database import sqlite_url
from kourou_spark_etl.read_model import read_model
from kourou_spark_etl.read_model.read_model import (
    QueryBatch,
    ReadModel,
    RecordedBatch,
    ask,
    bucket_of,
    list_tables,
)


@pytest.fixture(params=["sqlite", "postgresql"])
def model(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ReadModel]:
    url = sqlite_url(tmp_path / "read-model.db")
    if request.param == "postgresql":
        url = request.getfixturevalue("postgres").new_database()
    opened = ReadModel.open(url)
    yield opened
    opened.close()


def batch(number: int, query: str = "q", query_id: str = "id") -> QueryBatch:
    return QueryBatch(query, query_id, number, 1_000 + number)


def letters(count: int, first_ms: int = 5, last_ms: int = 5, **of: Any) -> dict[str, Any]:
    row = {"consumer_group": "g", "reason": "r", "origin_topic": "t"}
    return row | {"letters": count, "first_ms": first_ms, "last_ms": last_ms} | of


def rows(model: ReadModel, table: str = "dead_letters", **question: str) -> list[dict[str, Any]]:
    found = ask(model.database, table, question)
    assert found is not None
    return list(found["rows"])


def test_batches_add_up_and_a_repeated_one_does_not(model: ReadModel) -> None:
    assert model.write(batch(0), {"dead_letters": [letters(2, 5, 6)]}) == 1
    one = {"dead_letters": [letters(3, 4, 5), letters(1, reason="s")]}
    assert model.write(batch(1), one) == 2
    assert model.write(batch(1), one) is None
    assert model.write(batch(0), one) is None
    assert rows(model) == [
        {"query": "q", **letters(5, 4, 6)},
        {"query": "q", **letters(1, reason="s")},
    ]
    assert model.batches() == [
        RecordedBatch("q", "id", 0, 1, 1_000),
        RecordedBatch("q", "id", 1, 2, 1_001),
    ]
    assert model.last_batch("q") == model.batches()[-1]
    assert model.last_batch("p") is None


def test_a_batch_that_fails_leaves_nothing(
    model: ReadModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken() -> Iterator[dict[str, Any]]:
        yield letters(1)
        raise OSError("the worker died")

    with pytest.raises(OSError, match="the worker died"):
        model.write(batch(0), {"dead_letters": broken()})
    monkeypatch.setattr(read_model, "READ_MODEL_ROWS_MAX", 2)
    with pytest.raises(Rejected, match="more than 2 rows"):
        model.write(batch(0), {"dead_letters": [letters(1)] * 3})
    assert rows(model) == []
    assert model.batches() == []
    assert model.write(batch(0), {"dead_letters": [letters(1)]}) == 1


def test_a_new_checkpoint_begins_anew_with_its_own_rows_only(model: ReadModel) -> None:
    model.write(batch(0), {"dead_letters": [letters(2)]})
    model.write(batch(0, "other"), {"dead_letters": [letters(9)]})
    model.write(batch(0, query_id="new"), {"dead_letters": [letters(1)]})
    assert [(row["query"], row["letters"]) for row in rows(model)] == [("other", 9), ("q", 1)]
    assert [(one.query, one.query_id) for one in model.batches()] == [("other", "id"), ("q", "new")]


def test_a_gap_is_refused(model: ReadModel) -> None:
    with pytest.raises(Corrupt, match=r"sent batch 3, but .* has none of its batches"):
        model.write(batch(3), {})
    model.write(batch(0), {})
    with pytest.raises(Corrupt, match="has its batches up to 0"):
        model.write(batch(2), {})
    with pytest.raises(Corrupt, match="has none"):
        model.write(batch(1, query_id="new"), {})


def test_figures_of_windows_take_the_place_of_older_ones(model: ReadModel) -> None:
    def delays(flights: int) -> dict[str, Any]:
        sums = dict.fromkeys(("cancelled", "departed", "arrived", "late", "seats", "in_rain"), 0)
        sums |= {"departure_delay_min": -4, "arrival_delay_min": 3}
        at = {"dimension": "carrier", "name": "UA", "window_ms": 86_400_000, "label": "United"}
        return {**at, "flights": flights, **sums}

    model.write(batch(0), {"flight_delays": [delays(3)]})
    model.write(batch(1), {"flight_delays": [delays(5)]})
    (row,) = rows(model, "flight_delays", dimension="carrier")
    assert (row["flights"], row["departure_delay_min"]) == (5, -4)


def test_batches_of_files_are_noted_and_old_ones_forgotten(
    model: ReadModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read_model, "BATCHES_KEPT", 2)
    for number in (0, 1, 1, 4, 3):
        model.note(batch(number), 10)
    assert [one.batch_id for one in model.batches()] == [4]
    model.note(batch(5), 10)
    model.note(batch(0, query_id="new"), 1)
    assert [(one.query_id, one.batch_id) for one in model.batches()] == [("new", 0)]


def sample(at_ms: int, lag: int) -> dict[str, Any]:
    whole = {"consumer_group": "g", "topic": "t", "at_ms": at_ms, "lag": lag}
    return whole | {
        "end_offsets": 1,
        "consumed_offsets": 1,
        "in_per_s": None,
        "out_per_s": 1.5,
        "growth_per_s": -1.5,
        "drain_s": None,
    }


def test_history_is_kept_for_a_while(model: ReadModel) -> None:
    model.write(batch(0), {"backlog": [sample(10, 1), sample(20, 2)]})
    model.write(batch(1), {"backlog": [sample(30, 3)]}, dropping={"backlog": 20})
    assert [row["at_ms"] for row in rows(model, "backlog")] == [20, 30]
    assert [row["lag"] for row in model.rows("backlog", "q", since={"at_ms": 25})] == [3]


def test_questions(model: ReadModel) -> None:
    model.write(batch(0), {"backlog": [sample(at, at % 3) for at in range(7)]})
    newest = ask(model.database, "backlog", {"order": "-at_ms", "limit": "2"})
    assert newest is not None
    assert [row["at_ms"] for row in newest["rows"]] == [6, 5]
    assert newest["next"] == 2
    rest = ask(model.database, "backlog", {"order": "-at_ms", "limit": "5", "offset": "2"})
    assert rest is not None
    assert [row["at_ms"] for row in rest["rows"]] == [4, 3, 2, 1, 0]
    assert "next" not in rest
    assert [row["at_ms"] for row in rows(model, "backlog", lag="2", growth_per_s="-1.5")] == [2, 5]
    assert rows(model, "backlog", topic="'; DROP TABLE backlog; --") == []
    assert ask(model.database, "alembic_version", {}) is None
    tables = {table["table"]: table for table in list_tables(model.database)}
    assert tables["backlog"]["rows"] == 7
    assert "p99_ms" in tables["latency_percentiles"]["columns"]


@pytest.mark.parametrize(
    ("question", "says"),
    [
        ({"nope": "1"}, "has no column 'nope'"),
        ({"order": "-nope"}, "has no column 'nope'"),
        ({"limit": "0"}, "between 1 and 1000"),
        ({"limit": "1001"}, "between 1 and 1000"),
        ({"offset": "-1"}, "between 0 and"),
        ({"offset": "9" * 5_000}, "between 0 and"),
        ({"lag": "many"}, "not a number"),
        ({"lag": "9" * 30}, "too large"),
        ({"topic": "a\0b"}, "NUL"),
    ],
)
def test_questions_that_make_no_sense(tmp_path: Path, question: dict[str, str], says: str) -> None:
    model = ReadModel.open(sqlite_url(tmp_path / "read-model.db"))
    with pytest.raises(BadRequest, match=says):
        ask(model.database, "backlog", question)
    model.close()


def test_percentiles_are_taken_of_counts(model: ReadModel) -> None:
    def counted(ms: int, samples: int, window_ms: int = 0) -> dict[str, Any]:
        key = {"window_ms": window_ms, "stage": "store", "topic": "t", "consumer_group": ""}
        sums = {"samples": samples, "sum_ms": ms * samples, "max_ms": ms}
        return key | {"bucket": bucket_of(ms)} | sums

    model.write(batch(0), {"latency": [counted(10, 60), counted(100, 39)]})
    model.write(batch(1), {"latency": [counted(100, 0), counted(5_000, 1, 3_600_000)]})
    (found,) = rows(model, "latency_percentiles", topic="t")
    assert (found["samples"], found["max_ms"], found["mean_ms"]) == (100, 5_000, 95.0)
    assert 10 <= found["p50_ms"] <= 11
    assert 100 <= found["p90_ms"] <= 110
    assert found["p999_ms"] == 5_000
    (later,) = rows(model, "latency_percentiles", since_ms="1")
    assert later["samples"] == 1
    assert rows(model, "latency_percentiles", until_ms="0") == []
    with pytest.raises(BadRequest, match="not a condition"):
        rows(model, "latency_percentiles", bucket="3")
