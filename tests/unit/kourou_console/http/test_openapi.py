"""The description is valid, has everything, and what is described is what is answered."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from msgspec import inspect
from openapi_spec_validator import OpenAPIV31SpecValidator, validate
from schemathesis.core.transport import Response
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from kourou.testing.cluster import Cluster
from kourou_console.http.openapi import described
from kourou_console.http.request_input import path_names
from kourou_console.operation import Operation
from kourou_console.operations import OPERATIONS
from kourou_rigs.console import ConsoleHere

ANSWER_S = 30
FUZZED = {one.name for one in OPERATIONS if not one.stream}
STREAMS = {one.name for one in OPERATIONS if one.stream}
CHECKS = [response_schema_conformance, content_type_conformance, status_code_conformance]


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    """As it is served, without tokens."""
    return json.loads(msgspec.json.encode(described(OPERATIONS, tokens=False)))


def test_it_is_valid(document):
    validate(document, cls=OpenAPIV31SpecValidator)
    whole = json.loads(msgspec.json.encode(described(OPERATIONS, tokens=True)))
    validate(whole, cls=OpenAPIV31SpecValidator)
    assert whole["security"] == [{"token": []}]
    both = json.loads(msgspec.json.encode(described(OPERATIONS, tokens=True, users=True)))
    validate(both, cls=OpenAPIV31SpecValidator)
    assert both["security"] == [{"token": []}, {"user": []}]


def test_every_operation_is_there_once(document):
    there = {
        (path, method.upper()): operation["operationId"]
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    }
    assert there == {(one.path, one.method): one.name for one in OPERATIONS}
    assert max(Counter(one.name for one in OPERATIONS).values()) == 1


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda one: one.name)
def test_an_operation_is_as_the_contract_says(operation: Operation):
    assert operation.path.startswith("/v1/")
    assert operation.about.endswith("."), "sentences"
    names = [field.encode_name for field in msgspec.structs.fields(operation.parameters)]
    assert set(path_names(operation.path)) <= set(names)
    for kind in (operation.body, operation.json_body):
        for struct in structs(kind):
            assert struct.__struct_config__.forbid_unknown_fields, struct


def structs(kind: Any) -> Iterator[type[msgspec.Struct]]:
    """All Structs of a type, however deep."""
    seen: set[type] = set()

    def walk(found: Any) -> Iterator[type[msgspec.Struct]]:
        if isinstance(found, inspect.StructType):
            if found.cls in seen:
                return
            seen.add(found.cls)
            yield found.cls
            for field in found.fields:
                yield from walk(field.type)
        for name in ("types", "item_types"):
            for one in getattr(found, name, ()) or ():
                yield from walk(one)
        for name in ("item_type", "key_type", "value_type"):
            if (one := getattr(found, name, None)) is not None:
                yield from walk(one)

    if kind is not None:
        yield from walk(inspect.type_info(kind))


# -- asked from its own description ---------------------------------------------------------------


@pytest.fixture(scope="module")
def broken_in(tmp_path_factory) -> Iterator[ConsoleHere]:
    """A console of a cluster that nobody else needs: what is asked here may break it."""
    with Cluster(tmp_path_factory.mktemp("fuzzed"), brokers=2) as cluster:
        cluster.create_topic("orders")
        with cluster.client("tests") as client:
            client.send_many("orders", [b"a", b"b", b"c"], keys="k")
        with ConsoleHere(cluster) as here:
            yield here


KNOWN = {
    "topic": "orders",
    "group": "tests",
    "broker": "broker-a",
    "queue": "0",
    "queue_id": "0",
    "from": "0",
}
"""Names and beginnings that are there; most of what is made up is not."""


def fuzz(console: ConsoleHere, document: dict[str, Any], names: set[str], examples: int) -> Counter:
    """Ask every operation of these names so often; what must never be answered fails."""
    found: Counter = Counter()
    for result in schemathesis.openapi.from_dict(document).get_all_operations():
        operation = result.ok()
        name = operation.definition.raw["operationId"]
        if name not in names:
            continue

        asked(console, operation, found, examples)()
    return found


def asked(
    console: ConsoleHere, operation: Any, found: Counter, examples: int
) -> Callable[[], None]:
    """So many requests of one operation."""

    @settings(
        max_examples=examples,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate],
    )
    @given(case=operation.as_strategy())
    def ask(case: Any) -> None:
        hurried(case)
        answer = answer_to(case, f"http://{console.address}")
        found[answer.status_code] += 1
        assert answer.status_code < 500 or answer.status_code == 503, answer.text
        case.validate_response(answer, checks=CHECKS)

    return ask


def answer_to(case: Any, url: str) -> Response:
    """The answer; of a stream that begins, which need not end, its first line."""
    if case.operation.definition.raw["operationId"] not in STREAMS:
        return case.call(base_url=url, timeout=ANSWER_S)
    options = case.as_transport_kwargs(base_url=url)
    with requests.request(**options, stream=True, timeout=ANSWER_S) as answer:
        if answer.status_code != 200:
            return Response.from_any(answer)
        return Response(
            answer.status_code,
            {name: [value] for name, value in answer.headers.items()},
            next(answer.iter_lines(chunk_size=1)),
            answer.request,
            elapsed=answer.elapsed.total_seconds(),
            verify=False,
        )


def hurried(case: Any) -> None:
    """Names that are there, mostly, and no long waits; some streams are asked for little."""
    chance = random.Random(repr((case.path_parameters, case.query)))
    if case.operation.definition.raw["operationId"] in STREAMS:
        for given_values in (case.query, case.headers):
            for name in sorted(set(given_values or {}) - KNOWN.keys()):
                if chance.random() < 0.5:
                    del given_values[name]
    for given_values in (case.path_parameters, case.query):
        for name in list(given_values or {}):
            if name in KNOWN and chance.random() < 0.8:
                given_values[name] = KNOWN[name]
    for given_values in (case.query, case.body):
        if isinstance(given_values, dict) and "wait_ms" in given_values:
            given_values["wait_ms"] = 0


def test_no_call_ends_in_a_bug(broken_in, document):
    found = fuzz(broken_in, document, FUZZED, 2)
    assert found.total() >= len(FUZZED)
    assert not broken_in.failures


@pytest.mark.parametrize("name", sorted(STREAMS))
def test_no_stream_begins_with_a_bug(broken_in, document, name):
    # What was asked of other operations may have deleted it.
    again = {"permission": "rw"}
    assert broken_in.put(f"/v1/topics/{KNOWN['topic']}", json=again).status == 200
    found = fuzz(broken_in, document, {name}, 25)
    assert found[200], "some of them begin"
    assert found.total() >= 25
    assert not broken_in.failures


@pytest.mark.slow
@pytest.mark.parametrize("name", [one.name for one in OPERATIONS])
def test_no_call_ends_in_a_bug_however_often(broken_in, document, name):
    fuzz(broken_in, document, {name}, 150)
    assert broken_in.get("/healthz").status == 200
