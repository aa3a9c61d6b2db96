"""The broker as a process: its parts, connected.

Lives here: wiring, and the order in which parts come and go.
May not live here: decisions (kourou.engine), bytes on disk (kourou.store), sockets
(kourou.transport).
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kourou.clock import Clock, SystemClock
from kourou.engine.appends import LogEnd
from kourou.engine.control import decide_start
from kourou.engine.core import BrokerCore
from kourou.engine.desks import Desks, Start
from kourou.engine.effects import Flush, Reply
from kourou.engine.events import Event
from kourou.engine.inputs import (
    Announced,
    Disconnected,
    Input,
    Received,
    ReplyTo,
    SpaceChanged,
    Tick,
)
from kourou.engine.peer import Peer
from kourou.errors import Code, KourouError
from kourou.eventstore.event_store import EventStore
from kourou.service.admin_http import AdminHttp, AdminPages
from kourou.service.carrier import Ears
from kourou.service.entry import run_from_arguments
from kourou.service.lifecycle import leave
from kourou.service.loop import SingleWriterLoop
from kourou.service.rocketmq_keys import BROKER_KEYS
from kourou.store.disk import Disk
from kourou.store.store import Store
from kourou.transport.zmq_server import ZmqServer
from kourou_broker.address_server import AddressServer
from kourou_broker.boot import Booted
from kourou_broker.config import BrokerSettings
from kourou_broker.config_mirror import ConfigMirror
from kourou_broker.figures import Figures
from kourou_broker.hands import Hands
from kourou_broker.history_hands import HistoryHands
from kourou_broker.listening import Listening
from kourou_broker.measures import Measures
from kourou_broker.opening import OpenStore, open_store
from kourou_broker.projector import Projector
from kourou_broker.registration import Identity, Registration, told_topics
from kourou_broker.tracing import broker_spans, hands_of
from kourou_broker.wiring import (
    log_flush_of,
    policy_of,
    queue_flush_of,
    registry_of,
    write_out_of,
)

if TYPE_CHECKING:
    from kourou_broker.spans import BrokerSpans

_log = logging.getLogger("kourou.broker")

REGISTER_WAIT_S = 3.0
BUSY = "[REJECTREQUEST] too many requests wait at this broker; nothing was stored"
STOPPING = "the broker is stopping; nothing was done"
STARTING = "the broker is starting: it recovers its store; nothing was stored"


@dataclass(slots=True)
class _Parts:
    """What recovery made."""

    store: Store
    mirror: ConfigMirror
    events: EventStore | None
    core: BrokerCore
    booted: Booted


class BrokerService:
    """Implements kourou.service.lifecycle.Service."""

    name = "broker"
    server_type: type[ZmqServer] = ZmqServer

    def __init__(
        self, settings: BrokerSettings, clock: Clock | None = None, disk: Disk | None = None
    ) -> None:
        self.settings = settings
        self._clock: Clock = clock or SystemClock()
        self._disk = disk
        self._parts: _Parts | None = None
        self._registration: Registration | None = None
        self._address_server: AddressServer | None = None
        self._projector: Projector | None = None
        self._admin: AdminHttp | None = None
        self._loop: SingleWriterLoop[Input, Any] | None = None
        self._hands: Hands | None = None
        self._history: HistoryHands | None = None
        self._spans: BrokerSpans | None = None
        self._measures = Measures()
        ears = Ears(self._arrived, self._lost, self._post, self._measures.rpc)
        self._listening = Listening(settings, ears, self._clock, self.server_type)
        self._fail: Callable[[BaseException], None] = _nobody
        self._served = False
        self._ready = False
        self._trouble = ""

    # -- the steps of its life ----------------------------------------------------------------

    async def recover(self, fail: Callable[[BaseException], None]) -> None:
        """Listen, open the store, rebuild the control state, connect core and hands.

        Everything is bound first: a taken port leaves the store as it was. Who asks meanwhile is
        told that the broker is starting.
        """
        self._fail = fail
        self._spans = broker_spans(self.settings, os.environ)
        await self._listen()
        found = await asyncio.to_thread(open_store, self.settings, self._disk)
        try:
            self._connect(found)
        except BaseException:
            if self._parts is None:
                found.close()
            raise

    async def _listen(self) -> None:
        settings = self.settings
        self._listening.listen()
        if settings.admin_port is not None:
            admin = AdminHttp(settings.admin_host, settings.admin_port, self._pages())
            await admin.start()
            self._admin = admin

    def _connect(self, found: OpenStore) -> None:
        settings, store = self.settings, found.store
        figures = Figures(store, self._clock)
        desks = Desks(
            Start(
                view=store,
                control=found.booted.control,
                log=LogEnd(
                    store.end,
                    store.space.allocated_end,
                    settings.segment_size_bytes,
                    store.store_ms,
                ),
                flushed=store.flushed,
                store_host=(settings.broker_ip, self._listening.store_port),
                policy=policy_of(settings),
                rules=found.rules,
                registry=registry_of(settings),
                sync_flush=settings.sync_flush,
                flush_timeout_ms=settings.sync_flush_timeout_ms,
                figures=figures.table,
                staged=store.staged,
                delays=found.delays,
            )
        )
        core = BrokerCore(desks)
        core.recall(self._clock.monotonic_ms(), self._clock.now_ms())
        figures.attach(desks, self._listening.carriers, self._spans, self._measures)
        found.mirror.attach(desks.control, desks.commits, desks.delays)
        self._trouble = found.trouble
        self._parts = _Parts(store, found.mirror, found.events, core, found.booted)
        hands = hands_of(self._spans)(
            store,
            self._clock,
            log_flush=log_flush_of(settings),
            queue_flush=queue_flush_of(settings),
            write_out=write_out_of(settings),
            carriers=self._listening.carriers,
            post=self._post,
            config_changed=found.mirror.changed,
            announce=self._announce,
            failed=self._fail,
            events_projected=lambda: self._projector.projected if self._projector else 0,
            measures=self._measures,
        )
        self._hands = hands
        performers = hands.performers()
        self._history = HistoryHands(
            found.events,
            lambda: self._projector,
            flush=lambda: performers[Flush](Flush()),
            post=self._post,
        )
        timed = {Reply: self._measures.rpc.watching(performers[Reply])}
        self._loop = SingleWriterLoop(
            core,
            {**performers, **self._history.performers(), **timed},
            self._clock,
            on_failure=self._fail,
            refuse=self._refuse,
            inbox_inputs_max=settings.inbox_inputs_max,
        )
        self._measures.loop = self._loop.statistics
        self._figures = figures

    async def serve(self) -> Mapping[str, str]:
        """Record what a start records, begin to answer, register."""
        assert self._parts is not None
        assert self._loop is not None
        assert self._hands is not None
        parts, desks = self._parts, self._parts.core.desks
        await self._record_start(parts)
        self._loop.start(self._tick, self._hands.tick_ms)
        if parts.events is not None:
            self._projector = Projector(
                parts.store, parts.events, desks.control, lambda: desks.confirmations.flushed
            )
            self._projector.start()
        parts.mirror.start()
        self._served = self._ready = True
        await self._find_name_servers()
        listening = self._listening.told
        if self._admin is not None:
            listening["admin"] = f"http://{self._admin.address}"
        return listening

    async def _find_name_servers(self) -> None:
        addresses, url = self.settings.name_server_endpoints, self.settings.name_server_list_url
        if not addresses and not url:
            _log.warning("namesrvAddr is not set: clients find this broker through no name server")
            return
        self._registration = self._register_with(addresses)
        self._registration.start()
        if url:
            self._address_server = AddressServer(url, self._registration.follow)
            self._address_server.start()
            await self._address_server.first(REGISTER_WAIT_S)
        await self._registration.first(REGISTER_WAIT_S)

    async def _leave_name_servers(self) -> None:
        if self._address_server is not None:
            await self._address_server.stop()
        if self._registration is not None:
            await self._registration.stop()

    async def _record_start(self, parts: _Parts) -> None:
        """Append what was imported and what a broker makes for itself, before anybody asks."""
        assert self._hands is not None
        core = parts.core
        await self._record(parts.booted.imported, "imported from config/*.json of another broker")
        if parts.booted.imported:
            # Written again, those files count as ours: then only the log tells what was in them.
            await asyncio.to_thread(parts.store.write_out)
            await asyncio.to_thread(parts.store.flush)
        # Decided only now: what was imported is not made a second time.
        own = decide_start(core.desks.control, core.desks.topic_desk.rules)
        await self._record(own, "the broker's own")
        self._hands.dispatch()

    async def _record(self, events: Sequence[Event], why: str) -> None:
        """One by one, since a large import may need more than one log segment."""
        assert self._parts is not None
        assert self._hands is not None
        core, store = self._parts.core, self._parts.store
        performers = self._hands.performers()
        for event in events:
            now_ms, wall_ms = self._clock.monotonic_ms(), self._clock.now_ms()
            if store.space_wanted:
                await asyncio.to_thread(store.allocate_next)
            core.handle(now_ms, [SpaceChanged(*store.space)])
            for effect in core.start(now_ms, wall_ms, [event], why):
                performers[type(effect)](effect)

    def _register_with(self, addresses: Sequence[str]) -> Registration:
        settings = self.settings
        assert self._parts is not None
        desks = self._parts.core.desks
        listeners = settings.listeners(self._listening.dial)
        identity = Identity(
            settings.broker_cluster_name,
            settings.broker_name,
            settings.broker_id,
            listeners.get("tcp:internal") or listeners["zmq:internal"],
            "",
            dict(listeners),
        )
        return Registration(
            addresses,
            identity,
            lambda: told_topics(desks.control, desks.policy.permission),
            period_ms=settings.register_period_ms,
            timeout_ms=settings.register_timeout_ms,
            announced=self._announced,
        )

    async def drain(self) -> None:
        """Leave the name servers, finish what is under way, take nothing new."""
        self._ready = False
        await self._leave_name_servers()
        self._address_server = self._registration = None
        self._listening.carriers.pause()
        desks = self._parts.core.desks if self._parts else None
        deadline = self._clock.monotonic_ms() + self.settings.sync_flush_timeout_ms
        while desks is not None and desks.confirmations.owed:
            if self._clock.monotonic_ms() > deadline:
                break
            await asyncio.sleep(0.01)

    async def stop(self) -> None:
        """Record progress, flush and close everything."""
        if self._admin is not None:
            await self._admin.stop()
        await self._leave_name_servers()
        if self._loop is not None:
            self._loop.stop()
        if self._history is not None:
            for to in self._history.stop():
                self._answer(to, Code.SERVICE_NOT_AVAILABLE, STOPPING)
        parts, hands = self._parts, self._hands
        if parts is not None and hands is not None:
            try:
                self._last_records(parts, hands)
                if self._projector is not None:
                    await self._projector.stop()
                elif parts.events is not None:
                    parts.events.close()
                await hands.settle()
                await parts.mirror.stop()
            finally:
                await asyncio.to_thread(parts.store.close)
        self._listening.carriers.close()
        if self._spans is not None:
            await asyncio.to_thread(self._spans.close)

    def _last_records(self, parts: _Parts, hands: Hands) -> None:
        if parts.core.desks.confirmations.failed is not None:
            return
        performers = hands.performers()
        try:
            for effect in parts.core.stop(self._clock.now_ms()):
                performers[type(effect)](effect)
        except KourouError as error:
            _log.warning("the last progress is not in the log: %s", error)
        hands.dispatch()

    # -- requests -----------------------------------------------------------------------------

    def _arrived(self, received: list[Received]) -> None:
        if self._loop is None:
            for early in received:
                self._answer(early.to, Code.SERVICE_NOT_AVAILABLE, STARTING)
        else:
            self._admit(self._loop, received)

    def _admit(self, loop: SingleWriterLoop[Input, Any], received: list[Received]) -> None:
        if self._spans is None:
            loop.offer_all(received)
        else:
            self._spans.handle(received, loop.offer_all)

    def _lost(self, peer: Peer) -> None:
        if self._spans is not None:
            self._spans.disconnected(peer)
        self._post(Disconnected(peer))

    def _refuse(self, item: Input) -> None:
        if isinstance(item, Received):
            self._answer(item.to, Code.SYSTEM_BUSY, BUSY)
            if self._spans is not None:
                self._spans.refused(item.to, Code.SYSTEM_BUSY, BUSY)

    def _answer(self, to: ReplyTo, code: int, remark: str) -> None:
        self._listening.carriers.reply(Reply(to, code, remark))
        self._measures.rpc.answered(to, code)

    def _post(self, item: Input) -> None:
        if self._loop is not None:
            self._loop.post(item)

    def _tick(self) -> Input:
        assert self._hands is not None
        self._hands.tick()
        return Tick(self._clock.now_ms(), self._clock.monotonic_ms())

    def _announce(self, number: int) -> None:
        if self._registration is not None:
            self._registration.announce(number)
        else:
            self._announced(number)

    def _announced(self, number: int) -> None:
        self._post(Announced(number))

    # -- pages --------------------------------------------------------------------------------

    def _pages(self) -> AdminPages:
        return AdminPages(
            healthy=lambda: "" if not self._served or self._is_running() else "stopped",
            ready=self._unready,
            metrics=lambda: self._figures.metrics() if self._parts is not None else b"",
            config=self.settings.render,
            statistics=self._statistics,
        )

    def _is_running(self) -> bool:
        return self._loop is not None and self._loop.running

    def _unready(self) -> str:
        if self._ready:
            return ""
        return "not serving" if self._served else "starting"

    def _statistics(self) -> Mapping[str, Any]:
        if self._loop is None:
            return {"starting": True}
        return {
            **self._figures.statistics(),
            "loop": self._loop.statistics(),
            "event_store": {
                "behind": self._projector.behind if self._projector else 0,
                "trouble": self._projector.trouble if self._projector else self._trouble,
            },
            "name_servers": {} if self._registration is None else self._registration.registered,
            "history": {} if self._history is None else self._history.statistics(),
        }


def _nobody(error: BaseException) -> None:
    raise error


def run(argv: Sequence[str]) -> int:
    """Run a broker until it is told to stop; the exit code (0, 2, 70 or 75)."""
    logging.getLogger("alembic").setLevel(logging.WARNING)  # its every step is of no use here
    return run_from_arguments(
        "broker", "A Kourou message broker.", argv, BrokerSettings, BROKER_KEYS, BrokerService
    )


def main(argv: Sequence[str]) -> None:
    """`python -m kourou_broker`."""
    leave(run(argv))
