"""Read access to the tables over HTTP: rows of one table, and percentiles.

    /tables                                      the list of tables
    /tables/backlog?consumer_group=g&order=-at_ms&limit=10
    /tables/latency_percentiles?topic=orders&since_ms=…

Column names are looked up and values are bound, so no part of a request becomes SQL.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa

from kourou.errors import BadRequest
from kourou.eventstore.database import Database
from kourou.model.limits import READ_MODEL_PAGE_ROWS_MAX
from kourou_spark_etl.buckets import percentile_ms
from kourou_spark_etl.read_model.tables import ABOUT, latency, metadata

ROWS = 100
PERCENTILES = "latency_percentiles"
SHARES = {"p50_ms": 0.5, "p90_ms": 0.9, "p99_ms": 0.99, "p999_ms": 0.999}
_BY = ("query", "stage", "topic", "consumer_group")
_OWN = ("limit", "offset", "order")
_BIGINT_MAX = 2**63 - 1

Question = Mapping[str, str]
Row = dict[str, Any]


def list_tables(database: Database) -> list[Row]:
    """Every table with its columns and number of rows."""
    with database.reading() as connection:
        found: list[Row] = [
            {
                "table": name,
                "about": about,
                "columns": [column.name for column in metadata.tables[name].columns],
                "rows": connection.execute(
                    sa.select(sa.func.count()).select_from(metadata.tables[name])
                ).scalar_one(),
            }
            for name, about in ABOUT.items()
        ]
    columns = [*_BY, "samples", "mean_ms", "max_ms", *SHARES]
    about = "the table latency as percentiles, over all windows from since_ms to until_ms"
    return [*found, {"table": PERCENTILES, "about": about, "columns": columns}]


def ask(database: Database, name: str, question: Question) -> Row | None:
    """The rows that a request selects; None if the table does not exist. Raises BadRequest.

    The result has `table`, `rows`, and `next` (the offset of the next page) if there are more.
    """
    if name == PERCENTILES:
        return {"table": name, "rows": _percentiles(database, question)}
    table = metadata.tables.get(name)
    if table is None:
        return None
    limit = _whole(question, "limit", ROWS, 1, READ_MODEL_PAGE_ROWS_MAX)
    offset = _whole(question, "offset", 0, 0, _BIGINT_MAX)
    wanted = sa.select(table).order_by(*_order(table, question.get("order", "")))
    for key, text in question.items():
        if key not in _OWN:
            column = _column(table, key)
            wanted = wanted.where(column == _value(column, text))
    with database.reading() as connection:
        rows = [
            dict(row._mapping) for row in connection.execute(wanted.limit(limit + 1).offset(offset))
        ]
    found: Row = {"table": name, "rows": rows[:limit]}
    if len(rows) > limit:
        found["next"] = offset + limit
    return found


def _percentiles(database: Database, question: Question) -> list[Row]:
    told = [latency.c[name] for name in _BY]
    wanted = sa.select(
        *told,
        latency.c.bucket,
        sa.func.sum(latency.c.samples).label("samples"),
        sa.func.sum(latency.c.sum_ms).label("sum_ms"),
        sa.func.max(latency.c.max_ms).label("max_ms"),
    ).group_by(*told, latency.c.bucket)
    for key, text in question.items():
        if key in ("since_ms", "until_ms"):
            at = _whole(question, key, 0, 0, _BIGINT_MAX)
            window = latency.c.window_ms
            wanted = wanted.where(window >= at if key == "since_ms" else window < at)
        elif key in _BY:
            wanted = wanted.where(latency.c[key] == text)
        else:
            raise BadRequest(
                f"{key!r} is not a condition", hint=f"{', '.join(_BY)}, since_ms, until_ms"
            )
    counts: dict[tuple[str, ...], dict[int, int]] = {}
    sums: dict[tuple[str, ...], tuple[int, int]] = {}
    with database.reading() as connection:
        for row in connection.execute(wanted):
            of = tuple(row[: len(_BY)])
            counts.setdefault(of, {})[row.bucket] = int(row.samples)
            total, highest = sums.get(of, (0, 0))
            # PostgreSQL's sums of BIGINT are decimals.
            sums[of] = (total + int(row.sum_ms), max(highest, row.max_ms))
    return [
        {
            **dict(zip(_BY, of, strict=True)),
            "samples": sum(buckets.values()),
            "mean_ms": round(sums[of][0] / sum(buckets.values()), 3),
            "max_ms": sums[of][1],
            # A bucket's upper bound may exceed the maximum.
            **{
                name: min(round(percentile_ms(buckets, share), 3), sums[of][1])
                for name, share in SHARES.items()
            },
        }
        for of, buckets in sorted(counts.items())
    ]


def _order(table: sa.Table, text: str) -> list[Any]:
    """Order by a column, descending with `-` before it, then by the key for stable pages."""
    by: list[Any] = list(table.primary_key)
    if not text:
        return by
    column = _column(table, text.removeprefix("-"))
    return [column.desc() if text.startswith("-") else column, *by]


def _column(table: sa.Table, name: str) -> sa.Column[Any]:
    if name not in table.columns:
        known = ", ".join(column.name for column in table.columns)
        raise BadRequest(f"table {table.name} has no column {name!r}", hint=f"it has {known}")
    return table.columns[name]


def _value(column: sa.Column[Any], text: str) -> str | int | float:
    kind = column.type.python_type
    if kind is str:
        if "\0" in text:
            raise BadRequest(f"{column.name} contains a NUL")
        return text
    try:
        value: int | float = kind(text)
    except ValueError:
        raise BadRequest(f"{column.name}={text[:64]!r} is not a number") from None
    if kind is int and abs(value) > _BIGINT_MAX:
        raise BadRequest(f"{column.name}={text[:64]!r} is too large")
    return value


def _whole(question: Question, name: str, default: int, low: int, high: int) -> int:
    text = question.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit()) or not low <= int(text[:20]) <= high:
        raise BadRequest(f"{name} is {text[:64]!r}; it must be between {low} and {high}")
    return int(text)
