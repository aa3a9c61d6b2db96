"""An open store with its executors, event store and configuration files, independent of the role.

A change of role keeps all of this, so that it takes milliseconds. Only a truncation or restart of
the log closes the store and opens it again.

State: none of its own; its components document theirs.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from kourou.authorization.access_uses import UsesCounted
from kourou.authorization.audit import AccessDecided
from kourou.broker.config import BrokerSettings
from kourou.broker.part_settings import log_flush_of, queue_flush_of, write_out_of
from kourou.broker.storage.effect_executor import EffectExecutor
from kourou.broker.storage.open_store import OpenStore
from kourou.broker.storage.projector import Projector
from kourou.broker.telemetry.measurements import Measurements
from kourou.broker.telemetry.metrics import BrokerReport
from kourou.clock import Clock
from kourou.engine.control import ControlState
from kourou.engine.core import BrokerCore
from kourou.engine.effects import Effect, Flush
from kourou.engine.inputs import Input
from kourou.engine.view import CoreView
from kourou.errors import StoreFaulted
from kourou.events.control_events import Event
from kourou.service.audit_log import AuditLog
from kourou.service.protocol_server import ProtocolServers
from kourou.service.use_log import UseLog
from kourou.store.store import Store

if TYPE_CHECKING:
    from kourou.broker.telemetry.spans import BrokerSpans


def _ignore(_position: int) -> None:
    """Do nothing: this log is not replicated by Raft."""


def executor_of(spans: BrokerSpans | None) -> Callable[..., EffectExecutor]:
    """Return the factory of the effect executor: the plain one without tracing."""
    if spans is None:
        return EffectExecutor
    from kourou.broker.telemetry.spans import TracedExecutor  # only tracing needs OpenTelemetry

    return partial(TracedExecutor, spans)


@dataclass(frozen=True, slots=True)
class RuntimeCallbacks:
    """The callbacks of the executors: to the current core, and to the Raft group.

    `appended` gets the new end of the log; `flushed` gets the position below which it is on disk.
    """

    post: Callable[[Input], None]
    register_now: Callable[[int], None]
    failed: Callable[[BaseException], None]
    appended: Callable[[int], None] = _ignore
    flushed: Callable[[int], None] = _ignore


class StoreRuntime:
    """From an opened store to a closed one. All calls must be made on the running loop."""

    def __init__(
        self,
        settings: BrokerSettings,
        opened: OpenStore,
        clock: Clock,
        protocols: ProtocolServers,
        callbacks: RuntimeCallbacks,
        spans: BrokerSpans | None,
        measurements: Measurements,
    ) -> None:
        self.opened = opened
        self.post = callbacks.post
        self._opened_at = opened.recovered.control.next_offset
        self.store, self.events, self.mirror = opened.store, opened.events, opened.mirror
        self.report = BrokerReport(opened.store, clock)
        self.projector: Projector | None = None
        self.closed = False
        self._protocols, self._spans, self._measurements = protocols, spans, measurements
        self.executor = executor_of(spans)(
            opened.store,
            clock,
            log_flush=log_flush_of(settings),
            queue_flush=queue_flush_of(settings),
            write_out=write_out_of(settings),
            protocols=protocols,
            post=callbacks.post,
            config_changed=opened.mirror.changed,
            register_now=callbacks.register_now,
            failed=callbacks.failed,
            events_projected=lambda: self.projector.projected if self.projector else 0,
            measurements=measurements,
            appended=callbacks.appended,
            flushed=callbacks.flushed,
        )
        self.audit_folder = settings.store_root / "kourou" / "audit"
        self._audit = AuditLog(self.audit_folder)
        self._uses = UseLog(self.audit_folder.with_name("uses"))
        self.performers: dict[type[Effect], Callable[[Any], None]] = {
            **self.executor.performers(),
            AccessDecided: self._audit.record,
            UsesCounted: self._uses.record,
        }

    def flush(self) -> None:
        """Start to flush the log, or repeat a flush that is in progress afterwards."""
        self.performers[Flush](Flush())

    def imported(self, control: ControlState) -> Sequence[Event]:
        """Return what another broker changed in the files before the store was opened.

        The first leader records it, unless something was decided since.
        """
        return self.opened.recovered.imported if control.next_offset == self._opened_at else ()

    def attach(self, core: BrokerCore) -> None:
        """Attach a new core, whose state is used for metrics and files."""
        self._core = core
        self.report.attach(core.view, self._protocols, self._spans, self._measurements)
        self.mirror.attach(core.view)

    def serve(self, view: CoreView) -> None:
        """Start that core's projections into the event store and the files."""

        def safe() -> int:
            """Return the position below which events are final.

            Events above it may still be lost by a power loss, or be truncated by another leader.
            """
            return min(self.store.flushed, view.committed)

        if self.projector is None:
            self.projector = Projector(self.store, self.events, view.control, safe)
            self.projector.start()
            self.mirror.start()
        else:
            self.projector.attach(view.control, safe)
            self.mirror.renew()

    # -- end ---------------------------------------------------------------------------------------

    async def settle(self, *, flush: bool) -> None:
        """End the background work: projections, and work in threads.

        Only events on disk go to the event store: with `flush`, everything that was appended.
        """
        if self.projector is not None:
            if flush:
                with contextlib.suppress(StoreFaulted):  # already reported when the log failed
                    await asyncio.to_thread(self.store.flush)
                self._core.flushed_after_stop(self.store.flushed)
            await self.projector.stop()
        else:
            self.events.close()
        await self.executor.settle()
        await self.mirror.stop()

    async def close(
        self, leave: Callable[[Store], object] | None = None, *, settle: bool = True
    ) -> None:
        """Flush and close everything; there must be no active core.

        `leave` is called with the store at the end, in a thread; the store is closed in any case.
        Without `settle` it is left as by a killed process. Raises what `leave` raises.
        """
        self._audit.close()
        try:
            await self.settle(flush=settle)
            if leave is not None:
                await asyncio.to_thread(leave, self.store)
        finally:
            self.closed = True
            await asyncio.to_thread(self.store.close, settle=settle)
