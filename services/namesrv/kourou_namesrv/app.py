"""The name server process: connects the transports, the core and the key/value store."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from typing import Any

from kourou.authorization.audit import AccessDecided
from kourou.authorization.request_gate import PublishedGate
from kourou.clock import Clock, SystemClock
from kourou.errors import KourouError
from kourou.events.stream import WrittenMeanwhile
from kourou.protocol.request import Answerer
from kourou.runtime import Disconnected, Reply, Tick
from kourou.service.access_metrics import access_families
from kourou.service.admin_http import AdminHttp, AdminPages
from kourou.service.audit_log import AuditLog
from kourou.service.entry import run_from_arguments
from kourou.service.loop import SingleWriterLoop
from kourou.service.protocol_server import ProtocolServers, TransportCallbacks
from kourou.service.remoting_protocol import RemotingProtocol
from kourou.service.zmq_protocol import ZmqProtocol
from kourou.settings.registry import SettingsRegistry
from kourou.settings.sources import render
from kourou.telemetry.metrics import Family, expose
from kourou_namesrv.config import NamesrvSettings
from kourou_namesrv.core import Effect, Input, NamesrvCore
from kourou_namesrv.key_values import KeyValueStore, KeyValuesWritten, RecordKeyValues

_log = logging.getLogger("kourou.namesrv")

TICK_MS = 1_000


class NamesrvService:
    """Implements kourou.service.lifecycle.Service."""

    name = "namesrv"

    def __init__(self, settings: NamesrvSettings, clock: Clock | None = None) -> None:
        self._settings = settings
        self._clock: Clock = clock or SystemClock()
        self._text = render(settings, explained=False)
        self._kv = KeyValueStore(settings.kv_config_path, settings.event_store_url, self._clock)
        self._writer = ThreadPoolExecutor(1, "kourou-kv")  # one thread keeps their order
        self._gate = PublishedGate(settings.registering_keys, settings.secret_keys)
        self._audit = AuditLog(settings.kv_config_path.parent / "audit")
        callbacks = TransportCallbacks(
            lambda received: self._loop.offer_all(received),
            lambda peer: self._loop.post(Disconnected(peer)),
        )
        self._zmq = ZmqProtocol(
            Answerer.NAMESRV,
            callbacks,
            self._clock,
            insecure_network=settings.insecure_network,
            curve=settings.server_curve,
        )
        self._remoting = RemotingProtocol(
            Answerer.NAMESRV,
            callbacks,
            self._clock,
            insecure_network=settings.insecure_network,
            idle_ms=settings.idle_seconds * 1_000,
            tls=settings.server_tls,
        )
        self._protocols = ProtocolServers(self._zmq, self._remoting)
        self._loop: SingleWriterLoop[Input, Effect]
        self._listening: dict[str, str]
        self._admin: AdminHttp | None = None
        self._ready = False

    async def recover(self, fail: Callable[[BaseException], None]) -> None:
        """Bind the listeners, then load the key/value settings before the first request is read."""
        if self._settings.admin_enabled:
            host, port = self._settings.admin_host, self._settings.admin_port
            self._admin = AdminHttp(host, port, self._pages(), self._settings.http_tls)
            await self._admin.start()
        self._listening = self._zmq.listen(self._settings.listeners())
        self._listening |= self._remoting.listen(self._settings.tcp_listeners)
        if self._admin is not None:
            self._listening["admin"] = self._admin.url
        registry = SettingsRegistry.of(self._settings)
        self._core = NamesrvCore(self._settings, self._kv.load(), registry, self._text, self._gate)
        audited = self._audit.record
        self._loop = SingleWriterLoop(
            self._core,
            {Reply: self._protocols.reply, RecordKeyValues: self._record, AccessDecided: audited},
            self._clock,
            on_failure=fail,
            refuse=self._protocols.refuse,
        )

    async def serve(self) -> Mapping[str, str]:
        """Start the loop, and so the handling of requests. Returns the addresses by listener."""
        self._loop.start(lambda: Tick(self._clock.now_ms()), TICK_MS)
        self._ready = True
        return self._listening

    async def drain(self) -> None:
        """Accept no new requests; finish a write in progress and send its reply."""
        self._ready = False
        self._protocols.pause()
        await asyncio.get_running_loop().run_in_executor(self._writer, str)  # after pending writes

    async def stop(self) -> None:
        """Close everything."""
        if self._admin is not None:
            await self._admin.stop()
        self._kv.close()
        self._audit.close()
        self._writer.shutdown()
        self._protocols.close()

    def open_because(self) -> str:
        """Why it lets everybody in: no keys of brokers, or a broker that lets everybody in."""
        return self._gate.open_because

    def _record(self, effect: RecordKeyValues) -> None:
        self._writer.submit(self._record_in_thread, effect)

    def _record_in_thread(self, effect: RecordKeyValues) -> None:
        try:
            recorded = self._kv.record(effect.events, effect.expected_offset, effect.cause)
        except KourouError as error:
            missed = error.missed if isinstance(error, WrittenMeanwhile) else ()
            self._loop.post_threadsafe(KeyValuesWritten(missed, error, effect.request))
            return
        try:
            self._kv.write()
        except KourouError as error:  # kvConfig.json is a projection: the next change rewrites it
            _log.error("kv-file-failed: kvConfig.json is not written: %(error)s", {"error": error})
        self._loop.post_threadsafe(KeyValuesWritten(recorded, None, effect.request))

    def _pages(self) -> AdminPages:
        return AdminPages(
            healthy=lambda: "" if self._loop.running else "stopped",
            ready=lambda: "" if self._ready else "not serving",
            metrics=self._metrics,
            config=lambda: self._text,
            statistics=self._statistics,
        )

    def _statistics(self) -> Mapping[str, Any]:
        return {
            "brokers": [asdict(identity) for identity in self._core.routes.members()],
            "topics": len(self._core.routes.topics()),
            "loop": self._loop.statistics(),
            **self._protocols.statistics(),
        }

    def _metrics(self) -> bytes:
        base, routes = {"node_type": "nameserver"}, self._core.routes
        brokers = [({**base, "cluster": name}, count) for name, count in routes.counts().items()]
        expired = [(base, self._core.expired)]
        return expose(
            [
                Family.gauge("kourou_namesrv_brokers", samples=brokers),
                Family.gauge("kourou_namesrv_topics", samples=[(base, len(routes.topics()))]),
                Family.counter("kourou_namesrv_expired_brokers_total", samples=expired),
                *access_families(base, self._gate, self.open_because()),
                *self._protocols.families(base),
            ]
        )


def run(argv: Sequence[str], called_as: str = "kourou") -> int:
    """Run a name server until it receives a stop signal. Returns the exit code (0, 2, 70 or 75)."""
    about = "A Kourou name server: brokers register with it, clients get routes from it."
    return run_from_arguments(
        "namesrv", about, argv, NamesrvSettings, NamesrvService, called_as=called_as
    )
