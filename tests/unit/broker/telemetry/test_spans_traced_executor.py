"""A traced effect executor does what the plain one does, and records spans."""

from __future__ import annotations

import asyncio
import io
import json
import logging
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from kourou.broker.telemetry.spans import BrokerSpans, TracedExecutor
from kourou.engine.control import decide_start
from kourou.engine.effects import CopyChunk
from kourou.engine.inputs import Flushed
from kourou.engine.roles.leader import LeaderRole
from kourou.engine.roles.role import STANDALONE, RoleSettings
from kourou.errors import Code
from kourou.protocol.messages.replication import Attach, ChunkAck, LogChunk
from kourou.runtime import Peer, Received, ReplyTo
from kourou.service.loop import SingleWriterLoop
from kourou.telemetry.logs import LogFormat, configure_logs
from kourou.telemetry.tracing import Tracing
from kourou.telemetry.tracing_context import traceparent_of
from kourou_rigs.executing import PEER, effect_executor, send_to
from kourou_rigs.kept_carriers import KeptCarriers

FOLLOWER = Peer(2, "local", ("127.0.0.1", 5), "members")
TRACE = bytes(range(1, 25)) + b"\x01"


class Rig:
    def __init__(self, site, *, sync_flush: bool, role: RoleSettings = STANDALONE) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider(shutdown_on_exit=False)
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        tracing = Tracing(self.provider.get_tracer("t"), ratio=0.0)
        self.spans = BrokerSpans(SimpleNamespace(tracing=tracing))
        self.answered = asyncio.Event()
        self.protocols = KeptCarriers(self.answered.set)
        self.flushed = asyncio.Event()
        self.executor = effect_executor(
            site,
            partial(TracedExecutor, self.spans),
            protocols=self.protocols,
            post=self._post,
            failed=pytest.fail,
        )
        core = site.core(sync_flush=sync_flush, role=role)
        performers = self.executor.performers()
        for effect in core.start(0, 1, decide_start(core.parts.control, site.rules), "start"):
            performers[type(effect)](effect)
        self.loop: SingleWriterLoop = SingleWriterLoop(
            core, self.executor.performers(), site.clock, on_failure=pytest.fail
        )
        self.loop.start()

    @property
    def codes(self) -> list[int]:
        return [reply.code for reply in self.protocols.replies]

    def _post(self, item) -> None:
        self.loop.post(item)
        if isinstance(item, Flushed):
            self.flushed.set()

    def say(self, message: Attach | ChunkAck) -> None:
        """The follower speaks."""
        received = Received(ReplyTo(FOLLOWER, 0, True), message, [], 1)
        self.spans.handle([received], self.loop.offer_all)

    def send(self, trace: bytes, properties: str | None = None) -> None:
        request = send_to("T", properties=properties)
        to = ReplyTo(PEER, 1, False, trace)
        received = Received(to, request, [b"body"], 1, 0, trace)
        self.spans.handle([received], self.loop.offer_all)

    @property
    def shipped(self) -> int:
        """Up to where the follower was sent the log."""
        chunks = [one.request for one in self.protocols.notices]
        return max((one.end for one in chunks if isinstance(one, LogChunk)), default=0)

    @property
    def names(self) -> set[str]:
        return {span.name for span in self.exporter.get_finished_spans()}

    async def close(self) -> None:
        self.loop.stop()
        await self.executor.settle()
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
    rig.executor.dispatch()
    if not sync_flush:
        rig.executor._start_flush()
    await rig.flushed.wait()
    expected = {"store T", "append", "dispatch", "flush"}
    assert rig.names == (expected | {"wait"} if sync_flush else expected)
    await rig.close()


async def test_a_traced_send_that_a_follower_copies(site) -> None:
    role = LeaderRole(site.store, sync=True, ack_on_flush=True)
    rig = Rig(site, sync_flush=True, role=role)
    rig.send(b"")
    await rig.answered.wait()
    rig.say(Attach(cluster="DefaultCluster", broker_name="broker-a", broker_id=1))
    end = 0
    while end < site.store.end or not rig.spans.copies:
        if end == site.store.end:
            rig.send(TRACE)
        await until(rig, lambda have=end: rig.shipped > have)
        end = rig.shipped
        rig.say(ack(end))
    await until(rig, lambda: len(rig.codes) == 2)
    rig.executor.dispatch()
    expected = {"store T", "append", "dispatch", "wait", "flush", "ship", "copy"}
    assert rig.names == expected
    (store,) = [one for one in rig.exporter.get_finished_spans() if one.name == "store T"]
    assert store.attributes["kourou.replication.copies"] == 2
    await rig.close()


def ack(end: int) -> ChunkAck:
    return ChunkAck(group="broker-a", epoch=64, member="1", accepted=True, written=end, flushed=end)


async def until(rig: Rig, holds: Callable[[], bool]) -> None:
    while not holds():
        rig.answered.clear()
        if not holds():
            await rig.answered.wait()


async def test_a_follower_records_spans_of_traced_messages_in_its_leaders_bytes(site) -> None:
    rig = Rig(site, sync_flush=False)
    started = site.store.end
    rig.send(b"", f"traceparent\x01{traceparent_of(TRACE)}\x02")
    await rig.answered.wait()
    await rig.close()
    chunk = site.store.read_chunk(0, site.store.end, 1 << 20)
    follower = type(site)()
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    spans = BrokerSpans(SimpleNamespace(tracing=Tracing(provider.get_tracer("t"), ratio=0.0)))
    executor = effect_executor(follower, partial(TracedExecutor, spans), failed=pytest.fail)
    copy = executor.performers()[CopyChunk]
    copy(CopyChunk(0, started, bytes(chunk.data)[:started]))
    assert exporter.get_finished_spans() == (), "nothing traced has come"
    copy(CopyChunk(started, chunk.end, bytes(chunk.data)[started:]))
    (span,) = exporter.get_finished_spans()
    assert follower.store.end == site.store.end
    assert span.name == "replicate"
    assert span.parent.span_id.to_bytes(8, "big") == TRACE[16:24]
    assert span.attributes["kourou.log.position"] == chunk.end
    follower.store.close()


async def test_others_are_served_as_ever(site) -> None:
    rig = Rig(site, sync_flush=False)
    rig.send(b"")
    await rig.answered.wait()
    rig.executor.dispatch()
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
    assert {line.get("trace_id") for line in lines if line["message"] == "appending"} >= {
        TRACE[:16].hex()
    }
    await rig.close()
