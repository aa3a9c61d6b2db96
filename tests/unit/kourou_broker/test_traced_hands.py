"""Hands that are watched do the same, and say what they did."""

from __future__ import annotations

import asyncio
import io
import json
import logging
from types import SimpleNamespace

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from kourou.engine.control import decide_start
from kourou.engine.core import BrokerCore
from kourou.engine.inputs import Announced, Flushed, Received, ReplyTo
from kourou.engine.peer import Peer
from kourou.errors import Code
from kourou.protocol.messages.sending import SendMessage
from kourou.service.loop import SingleWriterLoop
from kourou.store.flush_schedule import FlushPolicy
from kourou.telemetry.logs import LogFormat, configure_logs
from kourou.telemetry.tracing import Tracing
from kourou.testing.kept_carriers import KeptCarriers
from kourou_broker.spans import BrokerSpans
from kourou_broker.traced_hands import TracedHands

PEER = Peer(1, "local", ("127.0.0.1", 4))
TRACE = bytes(range(1, 25)) + b"\x01"
RARELY = FlushPolicy(interval_ms=10**9, least_pages=10**9, thorough_ms=10**9)


class Rig:
    def __init__(self, site, *, sync_flush: bool) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider(shutdown_on_exit=False)
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        tracing = Tracing(self.provider.get_tracer("t"), ratio=0.0)
        self.spans = BrokerSpans(SimpleNamespace(tracing=tracing))
        self.answered = asyncio.Event()
        self.carriers = KeptCarriers(self.answered.set)
        self.flushed = asyncio.Event()
        self.hands = TracedHands(
            self.spans,
            site.store,
            site.clock,
            log_flush=RARELY,
            queue_flush=RARELY,
            carriers=self.carriers,
            post=self._post,
            config_changed=lambda table: None,
            announce=lambda number: self._post(Announced(number)) if number else None,
            failed=pytest.fail,
        )
        core = BrokerCore(site.desks(sync_flush=sync_flush))
        performers = self.hands.performers()
        for effect in core.start(0, 1, decide_start(core.desks.control, site.rules), "start"):
            performers[type(effect)](effect)
        self.loop: SingleWriterLoop = SingleWriterLoop(
            core, self.hands.performers(), site.clock, on_failure=pytest.fail
        )
        self.loop.start()

    @property
    def codes(self) -> list[int]:
        return [reply.code for reply in self.carriers.replies]

    def _post(self, item) -> None:
        self.loop.post(item)
        if isinstance(item, Flushed):
            self.flushed.set()

    def send(self, trace: bytes) -> None:
        request = SendMessage(
            producer_group="p",
            topic="T",
            queue_id=0,
            born_timestamp=1,
            default_topic="TBW102",
            default_topic_queue_nums=4,
        )
        to = ReplyTo(PEER, 1, False, trace)
        received = Received(to, request, [b"body"], 1, 0, trace)
        self.spans.handle([received], self.loop.offer_all)

    @property
    def names(self) -> set[str]:
        return {span.name for span in self.exporter.get_finished_spans()}

    async def close(self) -> None:
        self.loop.stop()
        await self.hands.settle()
        self.provider.shutdown()


@pytest.mark.parametrize("sync_flush", [False, True])
async def test_a_traced_send_from_its_arrival_to_the_disk(site, sync_flush) -> None:
    rig = Rig(site, sync_flush=sync_flush)
    rig.send(b"")  # who comes first makes the topic, and waits for the name servers, too
    await rig.answered.wait()
    rig.answered.clear()
    rig.flushed.clear()
    rig.send(TRACE)
    await rig.answered.wait()
    assert rig.codes == [Code.SUCCESS] * 2
    rig.hands.dispatch()
    if not sync_flush:
        rig.hands._start_flush()
    await rig.flushed.wait()
    expected = {"store T", "append", "dispatch", "flush"}
    assert rig.names == (expected | {"wait"} if sync_flush else expected)
    await rig.close()


async def test_others_are_served_as_ever(site) -> None:
    rig = Rig(site, sync_flush=False)
    rig.send(b"")
    await rig.answered.wait()
    rig.hands.dispatch()
    assert (rig.codes, rig.names) == ([Code.SUCCESS], set())
    await rig.close()


async def test_log_lines_of_a_traced_append_name_the_trace(site, monkeypatch) -> None:
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", [])
    monkeypatch.setattr(root, "level", root.level)
    out = io.StringIO()
    configure_logs(service="broker", log_format=LogFormat.JSON, stream=out)
    rig = Rig(site, sync_flush=False)
    store = site.store.append

    def append(*arguments) -> None:
        logging.getLogger("kourou.store").warning("appending")
        store(*arguments)

    monkeypatch.setattr(type(site.store), "append", lambda _self, *given: append(*given))
    rig.send(TRACE)
    await rig.answered.wait()
    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    assert {line.get("trace_id") for line in lines if line["event"] == "appending"} >= {
        TRACE[:16].hex()
    }
    await rig.close()
