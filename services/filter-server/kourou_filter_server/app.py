"""The filter server process: connects the transports, the core, the broker and the workers."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kourou.clock import Clock, SystemClock
from kourou.errors import Code
from kourou.protocol.request import Answerer
from kourou.runtime.effects import LogWarning, Reply
from kourou.runtime.inputs import Disconnected, Received, ReplyTo, Tick
from kourou.runtime.peer import Peer
from kourou.service.admin_http import AdminHttp, AdminPages
from kourou.service.entry import run_from_arguments
from kourou.service.lifecycle import leave
from kourou.service.loop import SingleWriterLoop
from kourou.service.protocol_server import BUSY, ProtocolServers, TransportCallbacks
from kourou.service.remoting_protocol import RemotingProtocol
from kourou.service.zmq_protocol import ZmqProtocol
from kourou.settings.sources import render
from kourou.telemetry.metrics import expose
from kourou.telemetry.tracing_setup import start_export, tracing_options
from kourou_filter_server.config import FilterServerSettings
from kourou_filter_server.core import FilterCore
from kourou_filter_server.effect_executor import SandboxExecutor
from kourou_filter_server.effects import AskBroker, Effect, Filtered, Judge, TellBroker
from kourou_filter_server.inputs import Input, Judged, Leaving, WorkerEnded
from kourou_filter_server.metrics import filter_families, filter_statistics
from kourou_filter_server.pulls import LEAVING
from kourou_filter_server.upstream import Upstream
from kourou_filter_server.zygote_link import Zygote

if TYPE_CHECKING:
    from kourou_filter_server.spans import FilterSpans

_log = logging.getLogger("kourou.filter-server")

TICK_MS = 100
REGISTER_WAIT_S = 3.0
LEAVE_WAIT_S = 1.0
LOOK_S = 0.01
UNSAFE_WARNING_S = 60.0
SERVICE = "kourou-filter-server"


class FilterServerService:
    """Implements kourou.service.lifecycle.Service."""

    name = "filter-server"

    def __init__(self, settings: FilterServerSettings, clock: Clock | None = None) -> None:
        self._settings = settings
        self._clock: Clock = clock or SystemClock()
        self._text = render(settings, explained=False)
        callbacks = TransportCallbacks(self._arrived, self._lost)
        insecure = settings.insecure_network
        self._zmq = ZmqProtocol(
            Answerer.FILTER_SERVER,
            callbacks,
            self._clock,
            insecure_network=insecure,
            curve=settings.server_curve,
        )
        self._remoting = RemotingProtocol(
            Answerer.FILTER_SERVER,
            callbacks,
            self._clock,
            insecure_network=insecure,
            idle_ms=settings.idle_seconds * 1_000,
        )
        self._protocols = ProtocolServers(self._zmq, self._remoting)
        self._executor: SandboxExecutor | None = None
        self._upstream: Upstream | None = None
        self._core: FilterCore | None = None
        self._loop: SingleWriterLoop[Input, Effect] | None = None
        self._spans: FilterSpans | None = None
        self._admin: AdminHttp | None = None
        self._unsafe_warning: asyncio.TimerHandle | None = None
        self._listening: dict[str, str] = {}
        self._serving = False

    # -- startup and shutdown -----------------------------------------------------------------

    async def recover(self, fail: Callable[[BaseException], None]) -> None:
        """Start the zygote first, so that a missing sandbox layer fails the start; then bind."""
        settings = self._settings
        self._spans = self._traced()
        zygote = Zygote(unsafe=settings.unsafe_no_sandbox, cores=settings.worker_cores)
        executor = SandboxExecutor(zygote, settings.worker_limits, self._post, fail)
        await executor.start()
        self._executor = executor
        if settings.unsafe_no_sandbox:
            self._warn_unsafe()
        if settings.admin_enabled:
            self._admin = AdminHttp(settings.admin_host, settings.admin_port, self._pages())
            await self._admin.start()
        self._listening = self._zmq.listen({"internal": settings.zmq_bind_address})
        self._listening |= self._remoting.listen(settings.tcp_listeners)
        if self._admin is not None:
            self._listening["admin"] = f"http://{self._admin.address}"
        listeners = settings.listeners(self._dial())
        address = listeners["zmq:internal"]
        self._core = FilterCore(settings.policy, address, listeners)
        self._upstream = Upstream(
            settings.broker_address,
            self._clock,
            self._post,
            self._context_of,
            settings.client_curve,
        )
        self._loop = SingleWriterLoop(
            self._core,
            {
                Reply: self._reply,
                Filtered: self._filtered,
                AskBroker: self._upstream.ask,
                TellBroker: self._upstream.tell,
                LogWarning: lambda effect: _log.warning("%s", effect.text),
                **self._watched(executor.performers()),
            },
            self._clock,
            on_failure=fail,
            refuse=self._refuse,
        )

    def _dial(self) -> Mapping[str, str]:
        host = self._settings.dial_host
        shown = f"[{host}]" if ":" in host else host
        found = {"zmq": f"{shown}:{self._zmq.server().port}"}
        if self._settings.tcp_enabled:
            found["tcp"] = f"{shown}:{self._remoting.port('internal')}"
        return found

    async def serve(self) -> Mapping[str, str]:
        """Start handling requests and register with the broker; wait for it REGISTER_WAIT_S at
        most.
        """
        assert self._loop is not None
        assert self._core is not None
        self._loop.start(self._tick, TICK_MS)
        self._serving = True
        registering = self._core.registering
        await self._until(lambda: registering.registered, REGISTER_WAIT_S)
        if not registering.registered:
            _log.warning("%s; retrying", registering.trouble)
        return self._listening

    async def drain(self) -> None:
        """Unregister, and reply to every pull, so that consumers use other filter servers."""
        self._serving = False
        core = self._core
        self._post(Leaving())
        if core is not None:
            await self._until(lambda: core.left, LEAVE_WAIT_S)
        self._protocols.pause()

    async def stop(self) -> None:
        """Close everything."""
        self._serving = False
        if self._unsafe_warning is not None:
            self._unsafe_warning.cancel()
        if self._admin is not None:
            await self._admin.stop()
        if self._loop is not None:
            self._loop.stop()
        if self._upstream is not None:
            self._upstream.close()
        self._protocols.close()
        if self._executor is not None:
            await self._executor.stop()
        if self._spans is not None:
            await asyncio.to_thread(self._spans.close)

    @staticmethod
    async def _until(so: Callable[[], bool], within_s: float) -> None:
        """Poll until `so()` is true, for at most `within_s`."""
        for _ in range(round(within_s / LOOK_S)):
            if so():
                return
            await asyncio.sleep(LOOK_S)

    def _warn_unsafe(self) -> None:
        _log.warning(
            "unsafeNoSandbox=true: filters run without a sandbox, with the rights of this user"
        )
        self._unsafe_warning = asyncio.get_running_loop().call_later(
            UNSAFE_WARNING_S, self._warn_unsafe
        )

    # -- requests -----------------------------------------------------------------------------

    def _arrived(self, received: list[Received]) -> None:
        if self._loop is None or not self._loop.running:
            for early in received:
                self._protocols.reply(Reply(early.to, Code.SERVICE_NOT_AVAILABLE, LEAVING))
            return
        if self._spans is not None:
            self._spans.arrived(received)
        self._loop.offer_all(received)

    def _lost(self, peer: Peer) -> None:
        if self._spans is not None:
            self._spans.disconnected(peer)
        self._post(Disconnected(peer))

    def _refuse(self, item: Input) -> None:
        if isinstance(item, Received):
            self._reply(Reply(item.to, Code.SYSTEM_BUSY, BUSY))

    def _reply(self, effect: Reply) -> None:
        self._protocols.reply(effect)
        if self._spans is not None:
            self._spans.answered(effect)

    def _filtered(self, effect: Filtered) -> None:
        if self._spans is not None:
            self._spans.filtered(effect)

    def _context_of(self, to: ReplyTo) -> bytes:
        return b"" if self._spans is None else self._spans.context(to)

    def _watched(
        self, performers: dict[type[Any], Callable[[Any], None]]
    ) -> dict[type[Any], Callable[[Any], None]]:
        """The executors of effects on workers, with spans for batches if tracing is enabled."""
        spans, judge = self._spans, performers[Judge]
        if spans is None:
            return performers

        def judge_watched(effect: Judge) -> None:
            spans.judging(effect)
            judge(effect)

        return {**performers, Judge: judge_watched}

    def _post(self, item: Input) -> None:
        if self._spans is not None and isinstance(item, Judged | WorkerEnded):
            self._spans.judged(item)
        if self._loop is not None:
            self._loop.post(item)

    def _tick(self) -> Input:
        return Tick(self._clock.now_ms(), self._clock.monotonic_ms())

    def _traced(self) -> FilterSpans | None:
        settings = self._settings
        options = tracing_options(
            os.environ,
            service_name=SERVICE,
            endpoint=settings.trace_otlp_endpoint or "",
            instance=str(settings.filter_server_index),
        )
        if options is None:
            return None
        from kourou_filter_server.spans import FilterSpans

        return FilterSpans(start_export(options))

    # -- pages --------------------------------------------------------------------------------

    def _pages(self) -> AdminPages:
        return AdminPages(
            healthy=lambda: "" if self._is_well() else "stopped",
            ready=self._unready,
            metrics=self._metrics,
            config=lambda: self._text,
            statistics=self._statistics,
        )

    def _is_well(self) -> bool:
        return not self._serving or (self._loop is not None and self._loop.running)

    def _unready(self) -> str:
        if not self._serving or self._core is None:
            return "not serving"
        return self._core.registering.trouble

    def _metrics(self) -> bytes:
        core, executor = self._core, self._executor
        if core is None or executor is None:
            return b""
        node = str(self._settings.filter_server_index)
        base = {"node_type": self.name, "node_id": node}
        return expose(
            [
                *filter_families(base, core, self._protocols, executor.zygotes_started),
                *(() if self._spans is None else self._spans.families(base)),
            ]
        )

    def _statistics(self) -> Mapping[str, Any]:
        if self._core is None or self._loop is None:
            return {"starting": True}
        return {
            **filter_statistics(self._core),
            "loop": self._loop.statistics(),
            **self._protocols.statistics(),
        }


def run(argv: Sequence[str], called_as: str = "kourou") -> int:
    """Run a filter server until it gets a stop signal. Returns the exit code (0, 2, 70 or 75)."""
    return run_from_arguments(
        "filter-server",
        "A Kourou filter server: runs consumers' filters in a sandbox.",
        argv,
        FilterServerSettings,
        (),
        FilterServerService,
        called_as=called_as,
    )


def main(argv: Sequence[str]) -> None:
    """`python -m kourou_filter_server`."""
    leave(run(argv))
