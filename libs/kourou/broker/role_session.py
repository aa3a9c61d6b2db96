"""One role session of a core: everything that is created when a broker starts or changes its role.

A change of role ends one session and starts another on the same open store, with the code of a
start: what a restart recovers, it recovers (decision 0084). The control state is kept, because it
is the result of the log's events in any role.

State: none of its own; its components document theirs.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from kourou.broker.acl_import import read_acl_files
from kourou.broker.config import BrokerSettings
from kourou.broker.network.connections import Listeners
from kourou.broker.storage.projector import HistoryExecutor
from kourou.broker.storage.store_runtime import StoreRuntime
from kourou.broker.telemetry.measurements import Measurements
from kourou.clock import Clock
from kourou.engine.admin.plain_acl_handler import IMPORT_ACTOR, IMPORT_REASON
from kourou.engine.control import ControlState, decide_start
from kourou.engine.core import BrokerCore
from kourou.engine.effects import ChangeRole, Effect
from kourou.engine.inputs import Dispatched, Input, SpaceChanged
from kourou.engine.policy import EffectivePolicy
from kourou.engine.ports import ANYWHERE
from kourou.engine.roles.role import RoleSettings
from kourou.engine.sends.appends import LogEnd
from kourou.engine.start import Start
from kourou.engine.view import CoreView
from kourou.errors import ConfigError, KourouError
from kourou.events.control_events import Event
from kourou.model.names import CONTROL_TOPIC
from kourou.protocol.messages.sends import EndTransaction, SendMessage, SendRecords
from kourou.replication.epochs import TruncateLog
from kourou.replication.static_follower import RestartAt
from kourou.runtime import Received, Reply, ReplyTo, Tick
from kourou.service.loop import SingleWriterLoop
from kourou.settings.registry import SettingsRegistry
from kourou.store.store import Store
from kourou.transport.busy_poll import BusyPoll

_log = logging.getLogger("kourou.broker")

DRAIN_POLL_S = 0.01
_WRITES = frozenset({SendMessage, SendRecords, EndTransaction})
"""Requests that need no consume queue and no key index, or that also search unprojected records."""


@dataclass(frozen=True, slots=True)
class SessionContext:
    """The dependencies and callbacks of a role session.

    `renew` requests another session, for a truncation or a change of role. `begin` requests a
    restart of the log; the session continues until the state before the new start is available.
    """

    clock: Clock
    listening: Listeners
    measurements: Measurements
    refuse: Callable[[Input], None]
    failed: Callable[[BaseException], None]
    renew: Callable[[TruncateLog | ChangeRole], None]
    begin: Callable[[RestartAt], None]
    performers: Mapping[type[Effect], Callable[[Any], None]] = field(default_factory=dict)


class RoleSession:
    """From an open store to a change of role."""

    def __init__(
        self,
        settings: BrokerSettings,
        store_runtime: StoreRuntime,
        control: ControlState,
        context: SessionContext,
        role: RoleSettings,
    ) -> None:
        self._clock, self._context, self._store_runtime = context.clock, context, store_runtime
        self.over = False
        self._settings = settings
        self._busy_poll_us = settings.busy_poll_us
        self._poll: BusyPoll | None = None
        self.core = BrokerCore(self._start(settings, control, role))
        self.leads = self.view.leads
        self.core.recall(self._clock.monotonic_ms(), self._clock.now_ms())
        store_runtime.attach(self.core)
        self.history = HistoryExecutor(
            store_runtime.events,
            lambda: store_runtime.projector,
            flush=store_runtime.flush,
            post=store_runtime.post,
            audit_folder=store_runtime.audit_folder,
        )
        performers = store_runtime.performers
        self._performers: dict[type[Effect], Callable[[Any], None]] = {
            **performers,
            **self.history.performers(),
            Reply: context.measurements.rpc.watching(performers[Reply]),
            RestartAt: context.begin,
            TruncateLog: self._ended_by,
            ChangeRole: self._ended_by,
            **context.performers,
        }
        self.loop: SingleWriterLoop[Input, Any] = SingleWriterLoop(
            self.core,
            self._performers,
            self._clock,
            on_failure=context.failed,
            refuse=context.refuse,
            inbox_inputs_max=settings.inbox_inputs_max,
        )
        context.measurements.loop = self.loop.statistics

    def _start(self, settings: BrokerSettings, control: ControlState, role: RoleSettings) -> Start:
        opened = self._store_runtime.opened
        store = opened.store
        return Start(
            view=store,
            control=control,
            log=LogEnd(
                store.end, store.space.allocated_end, settings.segment_size_bytes, store.store_ms
            ),
            flushed=store.flushed,
            store_host=(settings.broker_ip, self._context.listening.store_port),
            policy=EffectivePolicy.of(settings),
            registry=SettingsRegistry.of(settings),
            sync_flush=settings.sync_flush,
            flush_timeout_ms=settings.sync_flush_timeout_ms,
            figures=self._store_runtime.report.table,
            staged=store.staged,
            delays=opened.delays,
            role=role,
            secrets=settings.secret_keys,
            knows_replicas=settings.knows_replicas,
            uncopied=store.uncopied,
        )

    @property
    def view(self) -> CoreView:
        """What others may read of the core."""
        return self.core.view

    @property
    def store(self) -> Store:
        """The store that it works on."""
        return self._store_runtime.store

    # -- start ----------------------------------------------------------------------------------

    async def begin(self) -> bool:
        """Record the start-up events, then start the loop.

        False if the session ended before that, because another replica leads and appends by now.
        """
        if self.leads:
            await self._record_start()
        if self.view.control.access.uncopied:
            await asyncio.to_thread(self.store.mark_uncopied)
        elif self.leads and not self.over:
            await asyncio.to_thread(self.store.copy_completed)
        if self.over:
            return False
        self._store_runtime.executor.dispatch()
        self.loop.start(self._tick, self._store_runtime.executor.tick_ms)
        if not self.leads:
            self._catch_up()
        self._store_runtime.serve(self.view)
        return True

    async def _record_start(self) -> None:
        """Append imported changes and the broker's own start-up events, before serving.

        A follower records nothing: changes in its files are overwritten.
        """
        if self.view.elected:
            # The record that opens its epoch comes first.
            await self._record_with(self.core.lead)
        imported = self._store_runtime.imported(self.view.control)
        await self._record(imported, "imported from config/*.json of another broker")
        if imported:
            # Rewritten files count as this broker's own: then only the log contains their changes.
            await asyncio.to_thread(self.store.write_out)
            await asyncio.to_thread(self.store.flush)
        # Decided after the import, so that imported topics are not created twice.
        own = decide_start(self.view.control, self.view.topic_rules)
        await self._record(own, "the broker's own")
        await self._record_administrators()
        await self._record_initial_users()
        await self._record_imported_users()
        if not self.view.control.access.unreadable:
            self._settings.check_users(self.view.control.access.users)
        if not self.view.elected:
            self._perform(self.core.lead(self._clock.now_ms()))

    async def _record_administrators(self) -> None:
        """Record the first administrator, or the one that the owner of the machine recovers."""
        for file in self._settings.administrator_files:
            events = file.events(self.view.control.access, self._settings.secret_keys)
            await self._record(events, "recovery" if file.recovers else "first administrator")
            if file.recovers:
                await asyncio.to_thread(self.store.write_out)
                await asyncio.to_thread(self.store.flush)
                await asyncio.to_thread(file.path.unlink)

    async def _record_initial_users(self) -> None:
        """Record the users of initialUsersFile who do not exist, each with credentials and rights.

        Raises ConfigError for a file, or a user, that cannot be used, if there are no users at all;
        otherwise the log says so, and this broker leads without that user. While an
        event about users cannot be read, it is not known who does not exist.
        """
        file, access = self._settings.users_file, self.view.control.access
        if file is None or self.view.control.access.unreadable:
            return
        try:
            wanted = file.users()
        except ConfigError as error:
            self._not_created(error)
            return
        for name, entry in wanted.items():
            try:
                events = file.events(name, entry, access, self._settings.secret_keys)
            except ConfigError as error:
                self._not_created(error)
                continue
            await self._record(events, "initialUsersFile")

    def _not_created(self, error: ConfigError) -> None:
        """Log that a user was not created; raise the error if there are no users."""
        if not self.view.control.access.users:
            raise error
        _log.warning(
            "initial-users-failed: users of initialUsersFile were not created: %(error)s",
            {"error": error},
        )

    async def _record_imported_users(self) -> None:
        """Record the users of the files of `aclImportDir`, before requests are served.

        Bad files change nothing. Raises ConfigError for them if there are no users at all, because
        then everybody could do everything.
        """
        path = self._settings.acl_import_dir
        if path is None:
            return
        try:
            cluster = self._settings.cluster_name
            found = await asyncio.to_thread(read_acl_files, path, cluster)
            events = self.view.import_events(found)
        except KourouError as error:
            if not self.view.control.access.active:
                raise ConfigError(f"aclImportDir: {error.message}", hint=error.hint) from error
            return  # AclImport logs it
        await self._record(events, IMPORT_REASON, IMPORT_ACTOR)

    def _catch_up(self) -> None:
        """Apply decisions in bytes that were copied while there was no core."""
        span = self.store.queue_range(CONTROL_TOPIC, 0)
        if span is not None and span[1] > self.view.control.next_offset:
            advanced = [(CONTROL_TOPIC, 0, span[1])]
            self.loop.post(Dispatched(advanced, self.store.indexed))

    async def _record(self, events: Sequence[Event], why: str, actor: str = "broker") -> None:
        """Record one by one, because a large import may need more than one log segment."""
        for event in events:
            await self._record_with(partial(self._decided, event, why, actor))

    def _decided(self, event: Event, why: str, actor: str, wall_ms: int) -> list[Effect]:
        return self.core.start(self._clock.monotonic_ms(), wall_ms, [event], why, actor)

    async def _record_with(self, record: Callable[[int], list[Effect]]) -> None:
        """Allocate log space, then record, unless the session has ended by then."""
        store = self.store
        if store.space_wanted:
            await asyncio.to_thread(store.allocate_next)
        if not self.over:
            self.core.handle(self._clock.monotonic_ms(), [SpaceChanged(*store.space)])
            self._perform(record(self._clock.now_ms()))

    def _perform(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            self._performers[type(effect)](effect)

    def offer_all(self, received: Sequence[Received]) -> None:
        """Handle arrived requests, and busy-poll for the next ones.

        A request that reads must see all earlier writes, so they are projected first. Oneway writes
        may be delayed and batched, because an iteration costs more than handling one of them. Ends
        of transactions follow the sends that arrived with them: a producer that does not wait for
        an end waits for its next half message.
        """
        poll = self._poll
        if poll is None:
            loop = asyncio.get_running_loop()
            poll = self._poll = BusyPoll(loop, self._busy_poll_us)
        poll.met()
        patient = True
        ends = 0
        for one in received:
            kind = type(one.request)
            if kind is EndTransaction:
                ends += 1
            elif kind not in _WRITES:
                patient, ends = False, 0
                self.project()
                break
            patient = patient and one.to.oneway
        if ends and (patient or ends < len(received)):
            self.loop.offer_after([one for one in received if type(one.request) is EndTransaction])
            received = [one for one in received if type(one.request) is not EndTransaction]
        if received:
            self.loop.offer_all(received, patient=patient)
        if not self.over:
            poll.begin()

    def project(self) -> None:
        """Project all written records into queues and key index."""
        self._store_runtime.executor.dispatch_written()

    def _tick(self) -> Input:
        self._store_runtime.executor.tick()
        return self._time()

    def _time(self) -> Tick:
        return Tick(self._clock.now_ms(), self._clock.monotonic_ms())

    # -- end --------------------------------------------------------------------------------------

    async def drain(self, deadline_ms: int) -> None:
        """Wait up to the deadline for pending replies, and for followers to have the whole log.

        Thus a leader that is stopped for a failover leaves nothing behind.
        """
        while self.view.pending_replies and self._clock.monotonic_ms() < deadline_ms:  # noqa: ASYNC110 - no event
            await asyncio.sleep(DRAIN_POLL_S)
        if self.view.followers_have == ANYWHERE:
            return
        self.last_records()
        while self._clock.monotonic_ms() < deadline_ms and self.loop.running:
            self.loop.post(self._time())  # an iteration ships
            if self.view.followers_have >= self._store_runtime.store.end:
                break
            await asyncio.sleep(DRAIN_POLL_S)

    def _ended_by(self, effect: TruncateLog | ChangeRole) -> None:
        if self.over:
            return  # already requested; the next session sees what is left to do
        self.cease()
        self._context.renew(effect)

    def cease(self) -> None:
        """Stop handling inputs."""
        self.over = True
        self.loop.stop()
        if self._poll is not None:
            self._poll.stop()

    def depose(self, reason: str) -> None:
        """End the session because another replica may lead: append and acknowledge nothing more."""
        self.cease()
        self._perform(self.core.lose_leadership(reason))

    def catch_up(self) -> bool:
        """Apply everything that was copied; False if that is not possible now.

        The key index must be complete, too, because deduplication finds repeated sends by key.
        """
        store = self.store
        self._store_runtime.executor.dispatch()
        self.loop.turn()
        _, high = store.queue_range(CONTROL_TOPIC, 0) or (0, 0)
        return (
            not store.dispatch_behind_bytes
            and store.indexed == store.dispatched
            and self.view.control.next_offset == high
        )

    def release(self) -> list[ReplyTo]:
        """Reply to what waits for a quota, and to parked pulls.

        Returns the reply addresses of open history queries.
        """
        self._perform(self.core.release())
        return self.history.stop()

    def last_records(self) -> None:
        """Write counts of requests and record progress after `cease`: the core's last append."""
        self._perform(self.core.counted_last(self._clock.now_ms()))
        if self.view.failed is not None:
            return
        try:
            self._perform(self.core.stop(self._clock.now_ms()))
        except KourouError as error:
            _log.warning(
                "final-progress-unrecorded: the last consumer progress was not recorded: %(error)s",
                {"error": error},
            )
        self._store_runtime.executor.dispatch()

    # -- statistics -------------------------------------------------------------------------------

    def statistics(self) -> Mapping[str, Any]:
        """Return all statistics, for people."""
        projector = self._store_runtime.projector
        return {
            **self._store_runtime.report.statistics(),
            "loop": self.loop.statistics(),
            "event_store": {
                "behind": projector.behind if projector else 0,
                "trouble": projector.trouble if projector else self._store_runtime.opened.trouble,
            },
            "history": self.history.statistics(),
        }
