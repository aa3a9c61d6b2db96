"""The pipeline's pages are passed on; where there is none, it is said so."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from kourou.errors import BadRequest, Unavailable
from kourou.service.admin_http import AdminHttp, AdminPages
from kourou.transport.tls import ClientAuth, ServerTls, TlsFiles
from kourou_rigs.certificates import Authority
from kourou_rigs.console import ConsoleHere

ROWS = [{"consumer_group": "till", "lag": 5}, {"consumer_group": "shop", "lag": 7}]


async def question(path: str, asked: Mapping[str, str]) -> Any:
    """As spark-etl answers."""
    if path == "/tables":
        return [
            {"table": "backlog", "about": "lag", "columns": ["consumer_group", "lag"], "rows": 2}
        ]
    if path == "/tables/broken":
        raise Unavailable("the read model is away")
    if path != "/tables/backlog":
        return None
    if "nothing" in asked:
        raise BadRequest("table backlog has no column 'nothing'")
    wanted = [
        one
        for one in ROWS
        if asked.get("consumer_group", one["consumer_group"]) == one["consumer_group"]
    ]
    limit = int(asked["limit"])
    found: dict[str, Any] = {"table": "backlog", "rows": wanted[:limit]}
    if len(wanted) > limit:
        found["next"] = limit
    return found


QUERY = {
    "query": "backlog",
    "job": "backlog",
    "phase": "running",
    "attempts": 1,
    "failures": 0,
    "error": "",
    "batches": 3,
}


PAGES = AdminPages(
    healthy=lambda: "",
    ready=lambda: "",
    metrics=lambda: b"",
    config=lambda: "",
    statistics=lambda: {"master": "local[2]", "queries": [QUERY]},
    questions=question,
)


@pytest.fixture(scope="module")
def console(suite: Any) -> Iterator[ConsoleHere]:
    """A console with the address of a pipeline."""
    http = AdminHttp("127.0.0.1", 0, PAGES)
    suite.console.run(http.start())
    with ConsoleHere(suite.cluster, spark_etl_address=http.address) as here:
        yield here
    suite.console.run(http.stop())


def test_queries_and_tables_are_passed_on(console: ConsoleHere) -> None:
    found = console.get("/v1/spark").json
    assert (found["available"], found["master"]) == (True, "local[2]")
    (query,) = found["queries"]
    assert (query["phase"], query["error"], query["figures"]) == ("running", None, {"batches": 3})
    (table,) = console.get("/v1/spark/tables").json["items"]
    assert (table["table"], table["columns"], table["rows"]) == (
        "backlog",
        ["consumer_group", "lag"],
        2,
    )


def test_rows_by_condition_and_page(console: ConsoleHere) -> None:
    path = "/v1/spark/tables/backlog"
    found = console.get(path, query={"limit": 1}).json
    assert (found["items"], found["next"], found["total"], found["truncated"]) == (
        ROWS[:1],
        1,
        None,
        True,
    )
    shop = console.get(path, query={"where": "consumer_group=shop"}).json
    assert (shop["items"], shop["next"], shop["total"]) == (ROWS[1:], None, 1)
    assert console.get(path, query={"where": "nothing=1"}).status == 400
    assert console.get(path, query={"where": "limit=1"}).status == 400
    assert console.get("/v1/spark/tables/none").status == 404
    broken = console.get("/v1/spark/tables/broken").json
    assert (broken["available"], broken["items"]) == (False, [])
    assert "read model is away" in broken["why"]


def test_without_a_pipeline_it_is_said(suite: Any) -> None:
    for path in ("", "/tables", "/tables/backlog"):
        answer = suite.console.get(f"/v1/spark{path}")
        assert answer.status == 200
        assert answer.json["available"] is False
        assert "sparkEtlAddress" in answer.json["why"]


def test_pages_over_tls_are_verified(suite: Any, tmp_path: Path) -> None:
    authority, other = (Authority(tmp_path / name, name) for name in ("own", "other"))
    files = TlsFiles(*authority.pair("etl"), trust=authority.path, client_auth=ClientAuth.REQUIRE)
    http = AdminHttp("127.0.0.1", 0, PAGES, ServerTls(files, enforcing=True))
    suite.console.run(http.start())
    certificate, key = authority.pair("console")
    try:
        for trust, is_available in ((authority, True), (other, False)):
            with ConsoleHere(
                suite.cluster,
                spark_etl_address=http.url,
                tls_client_trust_path=trust.path,
                tls_client_cert_path=certificate,
                tls_client_key_path=key,
            ) as console:
                found = console.get("/v1/spark").json
            assert found["available"] == is_available, found
            assert is_available or "certificate verify failed" in found["why"]
    finally:
        suite.console.run(http.stop())
