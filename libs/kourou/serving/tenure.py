"""One tenure of a core: everything that is made anew when a broker starts, or changes its role.

A change of role is the end of one tenure and the beginning of another on the same open store, by
the code of a start: whatever a restart recovers, it recovers (decisions 0076 and 0084). The control
state goes on, for it is what the log's events make of it in any role.

State: none of its own; its parts say what theirs is.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from kourou.clock import Clock
from kourou.engine.appends import LogEnd
from kourou.engine.control import ControlState, decide_start
from kourou.engine.core import BrokerCore
from kourou.engine.desks import Desks, Role, Start
from kourou.engine.effects import BeginLog, ChangeRole, CutLog, Effect
from kourou.engine.following import FollowerRole
from kourou.engine.inputs import Dispatched, Input, SpaceChanged
from kourou.engine.leading import Leading
from kourou.engine.quorum import QuorumFollowerRole, QuorumLeaderRole
from kourou.engine.quorum_leading import QuorumLeading
from kourou.errors import KourouError
from kourou.events.control_events import Event
from kourou.model.names import CONTROL_TOPIC
from kourou.protocol.messages.sending import SendMessage, SendRecords
from kourou.protocol.messages.transactions import EndTransaction
from kourou.runtime.effects import Reply
from kourou.runtime.inputs import Received, ReplyTo, Tick
from kourou.service.loop import SingleWriterLoop
from kourou.serving.config import BrokerSettings
from kourou.serving.history_hands import HistoryHands
from kourou.serving.listening import Listening
from kourou.serving.measures import Measures
from kourou.serving.upkeep import Upkeep
from kourou.serving.wiring import policy_of, registry_of
from kourou.store.store import Store
from kourou.transport.busy_poll import BusyPoll

_log = logging.getLogger("kourou.broker")

DRAIN_POLL_S = 0.01
_NEVER_MS = 2**62
_WRITES = frozenset({SendMessage, SendRecords, EndTransaction})
"""Requests that need no queue and no key index, or look at what is not in them yet as well."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a tenure finds there, and whom it tells.

    `renew` is asked for another tenure, by a cut or a change of role. `begin` is told that the log
    must begin anew; the tenure goes on until somebody knows what came before it.
    """

    clock: Clock
    listening: Listening
    measures: Measures
    refuse: Callable[[Input], None]
    failed: Callable[[BaseException], None]
    renew: Callable[[CutLog | ChangeRole], None]
    begin: Callable[[BeginLog], None]
    performers: Mapping[type[Effect], Callable[[Any], None]] = field(default_factory=dict)


class Tenure:
    """From an open store to a change of role, in one role; None leads a log that nobody copies."""

    def __init__(
        self,
        settings: BrokerSettings,
        upkeep: Upkeep,
        control: ControlState,
        around: Surroundings,
        role: Role | None,
    ) -> None:
        self._clock, self._around, self._upkeep = around.clock, around, upkeep
        self.leads = not isinstance(role, FollowerRole | QuorumFollowerRole)
        self._elected = isinstance(role, QuorumLeaderRole)
        self.over = False
        self._busy_poll_us = settings.busy_poll_us
        self._poll: BusyPoll | None = None
        self.core = BrokerCore(Desks(self._start(settings, control, role)))
        self.core.recall(self._clock.monotonic_ms(), self._clock.now_ms())
        upkeep.attach(self.desks)
        self.history = HistoryHands(
            upkeep.events, lambda: upkeep.projector, flush=upkeep.flush, post=upkeep.post
        )
        performers = upkeep.performers
        self._performers: dict[type[Effect], Callable[[Any], None]] = {
            **performers,
            **self.history.performers(),
            Reply: around.measures.rpc.watching(performers[Reply]),
            BeginLog: around.begin,
            CutLog: self._ended_by,
            ChangeRole: self._ended_by,
            **around.performers,
        }
        self.loop: SingleWriterLoop[Input, Any] = SingleWriterLoop(
            self.core,
            self._performers,
            self._clock,
            on_failure=around.failed,
            refuse=around.refuse,
            inbox_inputs_max=settings.inbox_inputs_max,
        )
        around.measures.loop = self.loop.statistics

    def _start(self, settings: BrokerSettings, control: ControlState, role: Role | None) -> Start:
        found = self._upkeep.found
        store = found.store
        return Start(
            view=store,
            control=control,
            log=LogEnd(
                store.end, store.space.allocated_end, settings.segment_size_bytes, store.store_ms
            ),
            flushed=store.flushed,
            store_host=(settings.broker_ip, self._around.listening.store_port),
            policy=policy_of(settings),
            rules=found.rules,
            registry=registry_of(settings),
            sync_flush=settings.sync_flush,
            flush_timeout_ms=settings.sync_flush_timeout_ms,
            figures=self._upkeep.figures.table,
            staged=store.staged,
            delays=found.delays,
            role=role,
        )

    @property
    def desks(self) -> Desks:
        """What is known and decided."""
        return self.core.desks

    @property
    def store(self) -> Store:
        """What it works on."""
        return self._upkeep.store

    # -- the beginning --------------------------------------------------------------------------

    async def begin(self) -> bool:
        """Record what a start records, then handle whatever comes.

        False if it was over before that: another member leads by now, and appends.
        """
        if self.leads:
            await self._record_start()
        if self.over:
            return False
        self._upkeep.hands.dispatch()
        self.loop.start(self._tick, self._upkeep.hands.tick_ms)
        if not self.leads:
            self._catch_up()
        self._upkeep.serve(self.desks)
        return True

    async def _record_start(self) -> None:
        """Append what was imported and what a broker makes for itself, before anybody asks.

        A follower records nothing: what somebody changed in its files is overwritten.
        """
        if self._elected:
            # The record that opens its epoch comes before all others.
            await self._record_with(self.core.lead)
        imported = self._upkeep.imported(self.desks.control)
        await self._record(imported, "imported from config/*.json of another broker")
        if imported:
            # Written again, those files count as ours: then only the log tells what was in them.
            await asyncio.to_thread(self.store.write_out)
            await asyncio.to_thread(self.store.flush)
        # Decided only now: what was imported is not made a second time.
        own = decide_start(self.desks.control, self.desks.topic_desk.rules)
        await self._record(own, "the broker's own")
        if not self._elected:
            self._perform(self.core.lead(self._clock.now_ms()))

    def _catch_up(self) -> None:
        """What was decided in bytes that were copied while there was no core takes effect."""
        span = self.store.queue_range(CONTROL_TOPIC, 0)
        if span is not None and span[1] > self.desks.control.next_offset:
            grown = [(CONTROL_TOPIC, 0, span[1])]
            self.loop.post(Dispatched(grown, self.store.indexed))

    async def _record(self, events: Sequence[Event], why: str) -> None:
        """One by one, since a large import may need more than one log segment."""
        for event in events:
            await self._record_with(partial(self._decided, event, why))

    def _decided(self, event: Event, why: str, wall_ms: int) -> list[Effect]:
        return self.core.start(self._clock.monotonic_ms(), wall_ms, [event], why)

    async def _record_with(self, record: Callable[[int], list[Effect]]) -> None:
        """Make room in the log, then record, unless the tenure is over by then."""
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
        """Handle what has arrived, and be awake for what comes next.

        Whoever does not only write is to see all that was written before. One-way writes, for which
        nobody waits, may wait for others: a turn costs more than what it does for one of them.
        """
        poll = self._poll
        if poll is None:
            loop = asyncio.get_running_loop()
            poll = self._poll = BusyPoll(loop, self._busy_poll_us, idle=self.project)
        poll.met()
        patient = True
        for one in received:
            if type(one.request) not in _WRITES:
                patient = False
                self.project()
                break
            patient = patient and one.to.oneway
        self.loop.offer_all(received, patient=patient)
        if not self.over:
            poll.begin()

    def project(self) -> None:
        """Let queues and key index have all that was written."""
        self._upkeep.hands.dispatch_written()

    def _tick(self) -> Input:
        self._upkeep.hands.tick()
        return self._time()

    def _time(self) -> Tick:
        return Tick(self._clock.now_ms(), self._clock.monotonic_ms())

    # -- the end ----------------------------------------------------------------------------------

    async def drain(self, deadline_ms: int) -> None:
        """Let those be answered who wait, and followers have all that there is, up to a time.

        So a leader that is stopped for another one to lead leaves nothing behind.
        """
        owing = self.desks.confirmations
        while owing.owed and self._clock.monotonic_ms() < deadline_ms:  # noqa: ASYNC110 - no event tells
            await asyncio.sleep(DRAIN_POLL_S)
        leading = self.desks.leading
        if not isinstance(leading, Leading) or not leading.followers:
            return
        self.last_records()
        while self._clock.monotonic_ms() < deadline_ms and self.loop.running:
            self.loop.post(self._time())  # a turn ships
            if all(one.progress.written >= self._upkeep.store.end for one in leading.followers):
                break
            await asyncio.sleep(DRAIN_POLL_S)

    def _ended_by(self, effect: CutLog | ChangeRole) -> None:
        if self.over:
            return  # it has asked before; whoever comes next sees what is left to do
        self.cease()
        self._around.renew(effect)

    def cease(self) -> None:
        """Handle nothing more."""
        self.over = True
        self.loop.stop()
        if self._poll is not None:
            self._poll.stop()

    def depose(self, reason: str) -> None:
        """Another member may lead by now: append nothing more, and promise nothing."""
        self.cease()
        leading = self.desks.leading
        if isinstance(leading, QuorumLeading):
            self._perform(leading.lost(reason))

    def catch_up(self) -> bool:
        """Let everything take effect that was copied; False if that cannot be now.

        Repeated sends are found by their keys, so the key index must have all of it, too.
        """
        store = self.store
        self._upkeep.hands.dispatch()
        self.loop.turn()
        _, high = store.queue_range(CONTROL_TOPIC, 0) or (0, 0)
        return (
            not store.dispatch_behind_bytes
            and store.indexed == store.dispatched
            and self.desks.control.next_offset == high
        )

    def release(self) -> list[ReplyTo]:
        """Answer the pulls that wait; returns who still waits for an answer about the past."""
        answers = self.desks.pulls.expire(_NEVER_MS)
        self._perform([*self.desks.appends.take_done(), *answers])
        return self.history.stop()

    def last_records(self) -> None:
        """Record progress, behind `cease`: the last that this core appends."""
        if self.desks.confirmations.failed is not None:
            return
        try:
            self._perform(self.core.stop(self._clock.now_ms()))
        except KourouError as error:
            _log.warning("the last consumer progress was not recorded: %s", error)
        self._upkeep.hands.dispatch()

    # -- figures ----------------------------------------------------------------------------------

    def statistics(self) -> Mapping[str, Any]:
        """Everything, for people."""
        projector = self._upkeep.projector
        return {
            **self._upkeep.figures.statistics(),
            "loop": self.loop.statistics(),
            "event_store": {
                "behind": projector.behind if projector else 0,
                "trouble": projector.trouble if projector else self._upkeep.found.trouble,
            },
            "history": self.history.statistics(),
        }
