"""What only the service as a whole does; the rest is tested in tests/integration."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Iterator
from typing import Any

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from kourou.clock import SystemClock
from kourou.errors import Code, Unavailable
from kourou.model.filter import FilterFailure
from kourou.protocol.messages.filter_server import GetFilters
from kourou.protocol.wire.frames import NO_TRACE, decode_frame, encode_reply
from kourou.runtime import Peer, ReplyTo
from kourou.service.protocol_server import ProtocolServers
from kourou.telemetry.metric_table import BASE_LABELS, METRICS, MetricKind, ServiceKind
from kourou.transport.zmq_client import ZmqConnection
from kourou_filter_server import app
from kourou_filter_server.app import (
    FilterServerService,
    Upstream,
    filter_families,
    filter_statistics,
)
from kourou_filter_server.config import FilterServerSettings
from kourou_filter_server.interface import AskBroker, BrokerAnswered, EvaluateBatch
from kourou_rigs.filter_bench import Bench, a_pull, record

ALONE = FilterServerSettings(
    connect_which_broker="tcp://127.0.0.1:1",
    listen_port=0,
    tcp_enabled=False,
    admin_enabled=False,
    unsafe_no_sandbox=True,
)


class Heard(logging.Handler):
    """Counts warnings about the missing sandbox."""

    def __init__(self, enough: int) -> None:
        super().__init__(logging.WARNING)
        self._enough = enough
        self.count = 0
        self.done = asyncio.Event()

    def emit(self, record: logging.LogRecord) -> None:
        if "unsafeNoSandbox" in record.getMessage():
            self.count += 1
            if self.count >= self._enough:
                self.done.set()


@pytest.mark.feature("F243")
async def test_a_missing_sandbox_is_logged_every_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    assert app.UNSAFE_WARNING_S == 60
    monkeypatch.setattr(app, "UNSAFE_WARNING_S", 0.001)
    service = FilterServerService(ALONE)
    heard = Heard(enough=3)
    logger = logging.getLogger("kourou.filter-server")
    logger.addHandler(heard)
    try:
        await service.recover(pytest.fail)
        async with asyncio.timeout(30):
            await heard.done.wait()
        await service.drain()
        await service.stop()
        said = heard.count
        await asyncio.sleep(0)
        assert heard.count == said
    finally:
        logger.removeHandler(heard)


async def test_workers_get_their_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[frozenset[int]] = []

    class Unborn(Exception):
        """Enough was seen."""

    def zygote(*, unsafe: bool, cores: frozenset[int]) -> None:
        told.append(cores)
        raise Unborn

    monkeypatch.setattr(app, "Zygote", zygote)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2})
    with pytest.raises(Unborn):
        await FilterServerService(ALONE).recover(pytest.fail)
    assert told == [{1, 2}]


# -- what a running filter server shows is what the table of metrics says --------------------------


def test_every_family_has_the_labels_of_the_table(bench: Bench) -> None:
    bench.serving()
    bench.found(bench.pull(10), record(10))
    bench.results(bench.done(EvaluateBatch), "2", "raised", "oops")
    base = {"node_type": "filter-server", "node_id": "0"}
    shown = {one.name: one for one in filter_families(base, bench.core, ProtocolServers(), 1)}
    wanted = {
        spec.name: spec
        for spec in METRICS.values()
        if spec.services == (ServiceKind.FILTER_SERVER,)
    }
    assert set(shown) == set(wanted)
    for name, family in shown.items():
        assert family.kind is wanted[name].kind
        labels = {*wanted[name].labels, *BASE_LABELS[ServiceKind.FILTER_SERVER]}
        assert family.samples, name
        for sample, _ in family.samples:
            assert set(sample) == labels, name


def test_failed_pulls_of_each_kind_are_counted_from_0_on(bench: Bench) -> None:
    """Else the first one would be a series that begins, and no rise."""

    def failed() -> dict[str, float]:
        shown = {one.name: one for one in filter_families({}, bench.core, ProtocolServers(), 1)}
        counted = shown["kourou_filter_pulls_failed_total"]
        return {labels["kind"]: count for labels, count in counted.samples}

    bench.serving()
    none = {kind.value: 0 for kind in FilterFailure}
    assert failed() == none
    bench.core.statistics.pulls_failed[FilterFailure.LIED] += 2
    assert failed() == {**none, "lied": 2}


def test_statistics_are_for_people(bench: Bench) -> None:
    bench.serving()
    told = filter_statistics(bench.core)
    assert told["broker"] == "broker-a"
    assert told["trouble"] == ""
    assert told["filters"][0]["seen"] == 1
    assert told["workers"] == {"now": 1, "busy": 0, "wanted": 0}


async def test_the_page_of_a_server_without_a_broker() -> None:
    """It serves, says that it is not ready, and why; and shows the metrics of its table."""
    settings = FilterServerSettings(
        connect_which_broker="tcp://127.0.0.1:9",
        listen_port=0,
        unsafe_no_sandbox=True,
    )
    service = FilterServerService(settings)
    try:
        await service.recover(_failed)
        service._loop.start()  # type: ignore[union-attr]  # serve() would wait for the broker
        service._serving = True
        admin = service._listening["admin"]
        async with aiohttp.ClientSession() as session:
            async with session.get(f"{admin}/readyz") as answer:
                assert answer.status == 503
            async with session.get(f"{admin}/metrics") as answer:
                text = await answer.text()
    finally:
        await service.stop()
    shown = {
        f"{family.name}_total" if family.type == "counter" else family.name
        for family in text_string_to_metric_families(text)
    }
    table = {
        name
        for name, spec in METRICS.items()
        if ServiceKind.FILTER_SERVER in spec.services and not spec.when
    }
    assert shown == table
    assert any(METRICS[name].kind is MetricKind.HISTOGRAM for name in shown)


def _failed(error: BaseException) -> None:
    raise error


# -- what goes to the broker, frame by frame, and what becomes of its answers ----------------------


TRACE = bytes(range(1, 25)) + b"\x01"
BELOW = TRACE[:16] + bytes(8) + b"\x01"


class Wire:
    """Takes what is submitted instead of a socket."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, below: bytes) -> None:
        self.sent: list[tuple[list[Any], Callable[[Any], None]]] = []
        self.posted: list[Any] = []
        monkeypatch.setattr(
            ZmqConnection,
            "submit",
            lambda _, parts, _1, ended, _2: self.sent.append((parts, ended)),
        )
        self.upstream = Upstream(
            "127.0.0.1:1", SystemClock(), self.posted.append, lambda _to: below
        )

    def ask(self, to: ReplyTo | None) -> bytes:
        """The trace context with which a question leaves."""
        self.upstream.ask(AskBroker(7, a_pull(3), (b"more",), 500, to))
        frame = decode_frame(self.sent[-1][0])
        assert (frame.deadline_ms, frame.body) == (500, [b"more"])
        return frame.trace


@pytest.fixture
def wires(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[bytes], Wire]]:
    made: list[Wire] = []

    def make(below: bytes = b"") -> Wire:
        made.append(Wire(monkeypatch, below))
        return made[-1]

    yield make
    for wire in made:
        wire.upstream.close()


def asked_with(trace: bytes) -> ReplyTo:
    return ReplyTo(Peer(1, "zmq", ("127.0.0.1", 4)), 1, False, trace)


@pytest.mark.feature("F241")
async def test_a_question_stays_in_the_trace_of_its_pull(wires: Callable[..., Wire]) -> None:
    assert wires(BELOW).ask(asked_with(TRACE)) == BELOW  # below the span made of it here
    assert wires().ask(asked_with(TRACE)) == TRACE  # nothing is traced here: unchanged
    assert wires(BELOW).ask(asked_with(b"")) == NO_TRACE
    assert wires(BELOW).ask(None) == NO_TRACE


async def test_answers_come_back_with_their_token(wires: Callable[..., Wire]) -> None:
    wire = wires()
    wire.upstream.ask(AskBroker(9, GetFilters(), (), 500))
    _, ended = wire.sent[-1]
    ended(decode_frame([encode_reply(1, Code.SYSTEM_BUSY, "later"), b"x"]))
    ended(decode_frame([b"".join([encode_reply(1, 0)[:45], b"\xc1"])]))
    ended(Unavailable("gone"))
    busy, malformed, gone = wire.posted
    assert all(isinstance(one, BrokerAnswered) and one.token == 9 for one in wire.posted)
    assert (busy.code, busy.remark, list(busy.body)) == (Code.SYSTEM_BUSY, "later", [b"x"])
    assert malformed.error is not None
    assert str(gone.error) == "gone"
