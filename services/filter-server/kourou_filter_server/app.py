"""The filter server process: connects the transports, the core, the broker and the workers.

A request to the broker that cannot be sent within CONNECT_WAIT_MS fails, so that an offline broker
is reported quickly. Consumers repeat their pulls.

State: soft.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

from kourou.clock import Clock, SystemClock
from kourou.errors import Code, KourouError
from kourou.model.filter import FilterFailure
from kourou.protocol.messages.filter_server import NotifyFiltersChanged
from kourou.protocol.request import Answerer
from kourou.protocol.table import REQUESTS
from kourou.protocol.wire.frames import (
    NO_TRACE,
    Frame,
    decode_reply,
    decode_request,
    encode_request,
)
from kourou.runtime import Disconnected, LogWarning, Peer, Received, Reply, ReplyTo, Tick
from kourou.service.access_metrics import open_family
from kourou.service.admin_http import AdminHttp, AdminPages
from kourou.service.entry import run_from_arguments
from kourou.service.loop import SingleWriterLoop
from kourou.service.protocol_server import BUSY, ProtocolServers, TransportCallbacks
from kourou.service.remoting_protocol import RemotingProtocol
from kourou.service.zmq_protocol import ZmqProtocol
from kourou.settings.sources import render
from kourou.telemetry.metric_table import FILTER_BOUNDS_US
from kourou.telemetry.metrics import Family, Histogram, Labels, expose
from kourou.telemetry.tracing_setup import start_export, tracing_options
from kourou.transport.curve_keys import ClientCurve
from kourou.transport.pending_requests import Outcome
from kourou.transport.zmq_client import ZmqConnection
from kourou_filter_server.config import FilterServerSettings
from kourou_filter_server.context import VersionCounts
from kourou_filter_server.core import FilterCore
from kourou_filter_server.interface import (
    AskBroker,
    BatchEvaluated,
    BrokerAnswered,
    BrokerFound,
    Effect,
    EvaluateBatch,
    Filtered,
    FiltersChanged,
    Input,
    Leaving,
    SendToBroker,
    WorkerEnded,
)
from kourou_filter_server.pulls import LEAVING
from kourou_filter_server.zygote_link import SandboxExecutor, Zygote

if TYPE_CHECKING:
    from kourou_filter_server.spans import FilterSpans

# -- the connection to the broker -----------------------------------------------------------------

CONNECT_WAIT_MS = 200


class Upstream:
    """Sends requests to the broker. `context_of` returns the trace context of a request."""

    def __init__(
        self,
        address: str,
        clock: Clock,
        post: Callable[[Input], None],
        context_of: Callable[[ReplyTo], bytes],
        curve: ClientCurve | None = None,
    ) -> None:
        self._clock = clock
        self._post = post
        self._context_of = context_of
        self._connection = ZmqConnection(
            address,
            on_notify=self._notified,
            connect_wait_ms=CONNECT_WAIT_MS,
            clock=clock,
            curve=curve,
        )
        self._connection.on_connected = lambda: post(BrokerFound())

    def ask(self, effect: AskBroker) -> None:
        """Send a request; its result is posted."""
        token, request = effect.token, effect.request
        response = REQUESTS[request.code].response
        trace = NO_TRACE
        if effect.to is not None and effect.to.trace:
            trace = self._context_of(effect.to) or effect.to.trace

        def ended(outcome: Outcome) -> None:
            if isinstance(outcome, KourouError):
                self._post(BrokerAnswered(token, error=outcome))
                return
            try:
                code, remark, header = decode_reply(outcome, response)
            except KourouError as error:
                self._post(BrokerAnswered(token, error=error))
                return
            self._post(BrokerAnswered(token, code, remark, header, outcome.body))

        correlation = self._connection.next_correlation()
        head = encode_request(
            request, correlation=correlation, deadline_ms=effect.timeout_ms, trace=trace
        )
        deadline_ms = self._clock.monotonic_ms() + effect.timeout_ms
        try:
            self._connection.submit([head, *effect.body], correlation, ended, deadline_ms)
        except KourouError as error:  # it is closed: the service ends
            self._post(BrokerAnswered(token, error=error))

    def send(self, effect: SendToBroker) -> None:
        """Send a one-way request, if there is a connection."""
        if self._connection.connected:
            with suppress(KourouError):  # it is closed or full; losing the request is acceptable
                self._connection.oneway(effect.request)

    def _notified(self, frame: Frame) -> None:
        if frame.code != NotifyFiltersChanged.code:
            return  # a notification for other clients
        try:
            request = decode_request(frame)
        except KourouError:  # the next registration returns the version anyway
            return
        assert isinstance(request, NotifyFiltersChanged)
        self._post(FiltersChanged(request.filters_version, request.rights_changed))

    @property
    def connected(self) -> bool:
        """Whether a connection is established."""
        return self._connection.connected

    @property
    def address(self) -> str:
        """The broker's address."""
        return self._connection.address

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


# -- metrics and statistics -----------------------------------------------------------------------

Base = Mapping[str, str]
"""The labels of every sample."""


def filter_families(
    base: Base, core: FilterCore, protocols: ProtocolServers, zygotes_started: int
) -> Iterator[Family]:
    """The metrics of one filter server, except for its spans."""
    yield from _by_version(base, core)
    counts = core.statistics
    yield Family.counter("kourou_filter_pulls_total", "", [(base, counts.pulls)])
    # Counters start at 0, so that the first failure is visible as an increase.
    by_kind = {**{kind.value: 0 for kind in FilterFailure}, **counts.pulls_failed}
    failed = [({"kind": kind, **base}, count) for kind, count in by_kind.items()]
    yield Family.counter("kourou_filter_pulls_failed_total", "", failed)
    yield Family.gauge("kourou_filter_pulls_held", "", [(base, len(core.pulls))])
    yield Family.gauge("kourou_filter_waiting_bytes", "", [(base, core.pulls.waiting_bytes)])
    prefetch = core.pulls.prefetch
    yield Family.counter("kourou_filter_pulls_ahead_total", "", [(base, prefetch.used)])
    yield Family.gauge("kourou_filter_ahead_bytes", "", [(base, prefetch.kept_bytes)])
    yield Family.gauge("kourou_filter_workers", "", [(base, len(core.slots))])
    yield Family.gauge("kourou_filter_workers_busy", "", [(base, core.slots.busy)])
    yield Family.counter("kourou_filter_zygotes_total", "", [(base, zygotes_started)])
    yield Family.gauge("kourou_filter_registered", "", [(base, int(core.registration.registered))])
    yield from protocols.families(base)


def _by_version(base: Base, core: FilterCore) -> Iterator[Family]:
    every: list[tuple[Labels, VersionCounts]] = []
    failure_counts: list[tuple[Labels, float]] = []
    quarantined: list[tuple[Labels, float]] = []
    for key, version, counts in core.statistics.all():
        labels = {"consumer_group": key[0], "filter": key[1], "version": str(version), **base}
        every.append((labels, counts))
        failure_counts.append((labels, core.discipline.failure_count(key, version)))
        quarantined.append((labels, int(core.catalogue.is_quarantined(key, version))))

    def counter(name: str, figure: Callable[[VersionCounts], int]) -> Family:
        samples = [(labels, figure(counts)) for labels, counts in every]
        return Family.counter(f"kourou_python_filter_{name}_total", "", samples)

    yield counter("seen", lambda counts: counts.seen)
    yield counter("passed", lambda counts: counts.passed)
    yield counter("skipped", lambda counts: counts.skipped)
    yield counter("unfiltered", lambda counts: counts.unfiltered)
    yield counter("bytes_in", lambda counts: counts.bytes_in)
    yield counter("bytes_out", lambda counts: counts.bytes_out)
    yield counter("starts", lambda counts: counts.starts)
    errors = [
        ({**labels, "kind": kind}, count)
        for labels, counts in every
        for kind, count in counts.errors.items()
    ]
    yield Family.counter("kourou_python_filter_errors_total", "", errors)
    times = [
        (labels, Histogram.counted(FILTER_BOUNDS_US, counts.times, counts.micros))
        for labels, counts in every
    ]
    yield Family.histogram("kourou_python_filter_message_time", "", times)
    yield Family.gauge("kourou_python_filter_strikes", "", failure_counts)
    yield Family.gauge("kourou_python_filter_quarantined", "", quarantined)


def filter_statistics(core: FilterCore) -> dict[str, Any]:
    """The statistics in JSON form."""
    registration = core.registration
    return {
        "broker": registration.broker_name,
        "trouble": registration.trouble,
        "pulls": {
            "held": len(core.pulls),
            "waiting_bytes": core.pulls.waiting_bytes,
            "arrived": core.statistics.pulls,
            "answered_ahead": core.pulls.prefetch.used,
            "ahead_bytes": core.pulls.prefetch.kept_bytes,
            "failed": dict(core.statistics.pulls_failed),
        },
        "workers": {
            "now": len(core.slots),
            "busy": core.slots.busy,
            "wanted": core.slots.waiting,
        },
        "filters_version": core.catalogue.version,
        "dry_runs": len(core.dry_runs),
        "filters": [msgspec.to_builtins(one) for one in core.figures()],
    }


# -- the service ----------------------------------------------------------------------------------

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
            tls=settings.server_tls,
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
            self._admin = AdminHttp(
                settings.admin_host, settings.admin_port, self._pages(), settings.http_tls
            )
            await self._admin.start()
        self._listening = self._zmq.listen({"internal": settings.zmq_bind_address})
        self._listening |= self._remoting.listen(settings.tcp_listeners)
        if self._admin is not None:
            self._listening["admin"] = self._admin.url
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
                SendToBroker: self._upstream.send,
                LogWarning: lambda effect: effect.write(_log),
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
        registration = self._core.registration
        await self._until(lambda: registration.registered, REGISTER_WAIT_S)
        if not registration.registered:
            _log.warning(
                "filter-server-unregistered: this filter server cannot serve yet: %(reason)s; "
                "retrying",
                {"reason": registration.trouble},
            )
        return self._listening

    def open_because(self) -> str:
        """Why clients may do everything here: its broker, which it asks, has no users."""
        assert self._core is not None
        registration = self._core.registration
        if not registration.registered or registration.broker_decides:
            return ""
        return f"its broker {registration.broker_name} has no users, or does not enforce rights"

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
            "sandbox-disabled: unsafeNoSandbox=true: filters run without a sandbox, with the "
            "rights of this user"
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
        spans, evaluate = self._spans, performers[EvaluateBatch]
        if spans is None:
            return performers

        def evaluate_traced(effect: EvaluateBatch) -> None:
            spans.judging(effect)
            evaluate(effect)

        return {**performers, EvaluateBatch: evaluate_traced}

    def _post(self, item: Input) -> None:
        if self._spans is not None and isinstance(item, BatchEvaluated | WorkerEnded):
            self._spans.evaluated(item)
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
        return self._core.registration.trouble

    def _metrics(self) -> bytes:
        core, executor = self._core, self._executor
        if core is None or executor is None:
            return b""
        node = str(self._settings.filter_server_index)
        base = {"node_type": self.name, "node_id": node}
        return expose(
            [
                *filter_families(base, core, self._protocols, executor.zygotes_started),
                open_family(base, self.open_because()),
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
        FilterServerService,
        called_as=called_as,
    )
