"""The Spark pipeline: its queries, and the tables that they write.

If no pipeline is configured (`sparkEtlAddress`), or it does not reply, `available` is false and
`why` is the reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any
from urllib.parse import quote

import aiohttp
import msgspec

from kourou.access.model import Action
from kourou.errors import BadRequest, Code, ConfigError, Corrupt, Rejected, Unavailable
from kourou.model.limits import CONSOLE_SPARK_BYTES_MAX, READ_MODEL_PAGE_ROWS_MAX
from kourou_console.config import HTTPS
from kourou_console.gateway import Gateway
from kourou_console.lists import Listing, Missing, Name
from kourou_console.operation import Chapter, NoParameters

OPERATIONS = Chapter("Spark")

ASK_S = 10.0
ROWS = 100
_OWN = ("query", "job", "phase", "attempts", "failures", "error")
_RESERVED = ("limit", "offset", "order")


class SparkQuery(msgspec.Struct, frozen=True, kw_only=True):
    """A query of the job file; `phase` is that of spark-etl, `figures` are its counters."""

    query: str
    job: str
    phase: str
    attempts: int | None
    failures: int | None
    error: str | None
    figures: dict[str, Any]


class Spark(msgspec.Struct, frozen=True, kw_only=True):
    """The pipeline, or why there is none."""

    available: bool
    why: str | None
    address: str | None
    master: str | None
    queries: list[SparkQuery]
    as_of_ms: int
    missing: list[Missing] = []


class SparkTable(msgspec.Struct, frozen=True, kw_only=True):
    """A table of the read model."""

    table: str
    about: str | None
    columns: list[str]
    rows: int | None


class SparkTables(Listing[SparkTable], frozen=True, kw_only=True):
    """All tables, or why there are none."""

    available: bool
    why: str | None


class RowsWanted(msgspec.Struct, frozen=True, kw_only=True):
    """`where` is `column=value`, repeatable; `order` is a column, `-column` to descend."""

    table: Name
    where: Annotated[list[str], msgspec.Meta(max_length=16)] = []
    order: Annotated[str, msgspec.Meta(max_length=128)] = ""
    limit: Annotated[int, msgspec.Meta(ge=1, le=READ_MODEL_PAGE_ROWS_MAX)] = ROWS
    offset: Annotated[int, msgspec.Meta(ge=0, le=2**31)] = 0


class SparkRows(Listing[dict[str, Any]], frozen=True, kw_only=True):
    """Rows of a table; `next` is the offset of the next page."""

    table: str
    columns: list[str]
    next: int | None
    available: bool
    why: str | None


@OPERATIONS.get("/v1/spark", "spark")
async def spark(gateway: Gateway, _parameters: NoParameters) -> Spark:
    """The queries of the Spark pipeline and their state, or why Spark is unavailable."""
    address = gateway.settings.spark_etl_address
    try:
        found = await _asked(gateway, "/statistics", {})
    except Unavailable as error:
        return Spark(
            available=False,
            why=str(error),
            address=address or None,
            master=None,
            queries=[],
            as_of_ms=gateway.clock.now_ms(),
            missing=[Missing("spark-etl", str(error))],
        )
    return Spark(
        available=True,
        why=None,
        address=address,
        master=found.get("master"),
        queries=[_query(one) for one in found.get("queries") or []],
        as_of_ms=gateway.clock.now_ms(),
    )


def _query(one: Mapping[str, Any]) -> SparkQuery:
    return SparkQuery(
        query=str(one.get("query")),
        job=str(one.get("job")),
        phase=str(one.get("phase")),
        attempts=one.get("attempts"),
        failures=one.get("failures"),
        error=one.get("error") or None,
        figures={name: value for name, value in one.items() if name not in _OWN},
    )


@OPERATIONS.get("/v1/spark/tables", "spark_tables")
async def tables(gateway: Gateway, _parameters: NoParameters) -> SparkTables:
    """The tables written by the pipeline."""
    now_ms = gateway.clock.now_ms()
    try:
        found = await _asked(gateway, "/tables", {})
    except Unavailable as error:
        return SparkTables(
            items=[],
            total=None,
            as_of_ms=now_ms,
            missing=[Missing("spark-etl", str(error))],
            available=False,
            why=str(error),
        )
    items = [
        SparkTable(
            table=str(one.get("table")),
            about=one.get("about"),
            columns=list(one.get("columns") or []),
            rows=one.get("rows"),
        )
        for one in found
    ]
    return SparkTables(items=items, total=len(items), as_of_ms=now_ms, available=True, why=None)


@OPERATIONS.get("/v1/spark/tables/{table}", "spark_rows", needs=((Action.SUB, "Topic:*"),))
async def rows(gateway: Gateway, parameters: RowsWanted) -> SparkRows:
    """Rows of one table: `where=column=value` is repeatable, `order=-column` sorts descending."""
    question = {"limit": str(parameters.limit), "offset": str(parameters.offset)}
    if parameters.order:
        question["order"] = parameters.order
    for one in parameters.where:
        column, equals, value = one.partition("=")
        if not equals or not column or column in _RESERVED:
            raise BadRequest(f"where={one[:64]!r} is not column=value")
        question[column] = value
    if parameters.table == "latency_percentiles":  # computed, without pages
        question = {name: value for name, value in question.items() if name not in _RESERVED}
    try:
        found = await _asked(gateway, f"/tables/{quote(parameters.table, safe='')}", question)
    except Unavailable as error:
        return SparkRows(
            items=[],
            total=None,
            as_of_ms=gateway.clock.now_ms(),
            missing=[Missing("spark-etl", str(error))],
            table=parameters.table,
            columns=[],
            next=None,
            available=False,
            why=str(error),
        )
    items = list(found.get("rows") or [])
    return SparkRows(
        items=items,
        total=None if found.get("next") is not None else parameters.offset + len(items),
        truncated=found.get("next") is not None,
        as_of_ms=gateway.clock.now_ms(),
        table=parameters.table,
        columns=list(items[0]) if items else [],
        next=found.get("next"),
        available=True,
        why=None,
    )


async def _asked(gateway: Gateway, path: str, question: Mapping[str, str]) -> Any:
    """Request a page of spark-etl. Raises Unavailable, BadRequest, Rejected (404) or Corrupt."""
    address = gateway.settings.spark_etl_address
    if not address:
        raise Unavailable(
            ("Spark is not running. Start it with ./kourou up --spark."),
            hint="sparkEtlAddress=host:port",
        )
    timeout = aiohttp.ClientTimeout(total=ASK_S)
    over_tls = address.startswith(HTTPS)
    url = address if over_tls else f"http://{address}"
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.get(
                f"{url}{path}",
                params=question,
                # Read for each request, so it uses files that have changed.
                ssl=gateway.settings.client_tls.context() if over_tls else True,
            ) as answer,
        ):
            content = await answer.content.read(CONSOLE_SPARK_BYTES_MAX + 1)
            while len(content) <= CONSOLE_SPARK_BYTES_MAX and not answer.content.at_eof():
                content += await answer.content.read(CONSOLE_SPARK_BYTES_MAX + 1)
            status = answer.status
    except (TimeoutError, aiohttp.ClientError, OSError, ConfigError) as error:
        raise Unavailable(
            f"Spark does not respond at {address}: {error or type(error).__name__}"
        ) from error
    if len(content) > CONSOLE_SPARK_BYTES_MAX:
        raise Unavailable("spark-etl's answer is too large", hint="a smaller limit")
    if status == 404:
        raise Rejected("table not found", code=Code.QUERY_NOT_FOUND)
    try:
        found = msgspec.json.decode(content)
    except msgspec.DecodeError as error:
        raise Corrupt(f"the service at {address} is not spark-etl: {error}") from error
    if status == 400:
        raise BadRequest(str(found.get("error")) if isinstance(found, dict) else "refused")
    if status != 200:
        message = found.get("error") if isinstance(found, dict) else None
        raise Unavailable(f"spark-etl: {message or status}")
    return found
