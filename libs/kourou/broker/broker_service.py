"""A broker as a process, in any role: everything that outlives a role session.

State: soft (the leader's address, as reported by name servers).
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kourou.broker.acl_import import AclImport
from kourou.broker.config import BrokerSettings
from kourou.broker.network.connections import LeaderLink, Listeners
from kourou.broker.network.registration import (
    AddressServer,
    Registration,
    RegistrationIdentity,
    registered_topics,
)
from kourou.broker.part_settings import role_of
from kourou.broker.role_session import RoleSession, SessionContext
from kourou.broker.storage.bootstrap import Bootstrap, RestartLog, RestartRequest
from kourou.broker.storage.open_store import open_store
from kourou.broker.storage.store_runtime import RuntimeCallbacks, StoreRuntime
from kourou.broker.telemetry.exporter_page import ExporterPage, PageQuestions, exporter_page
from kourou.broker.telemetry.measurements import Measurements
from kourou.clock import Clock, SystemClock
from kourou.engine.admin.access_gate import REPLICAS_UNKNOWN, REPLICAS_UNKNOWN_HINT
from kourou.engine.control import ControlState
from kourou.engine.effects import ChangeRole, Effect
from kourou.engine.inputs import Fenced, Input, LeaderConnected, RegistrationDone, UsersRead
from kourou.engine.roles.role import RoleSettings
from kourou.engine.view import CoreView
from kourou.errors import Code, ConfigError
from kourou.model.topic import MASTER_ID
from kourou.protocol.messages.namesrv import RegisterBrokerResponse
from kourou.replication.epochs import TruncateLog
from kourou.runtime import Disconnected, Peer, Received, Reply, ReplyTo
from kourou.service.admin_http import AdminHttp, AdminPages
from kourou.service.protocol_server import TransportCallbacks
from kourou.settings.sources import render
from kourou.store.disk import Disk
from kourou.store.store import Store
from kourou.telemetry.tracing_setup import start_export, tracing_options
from kourou.transport.zmq_server import ZmqServer

if TYPE_CHECKING:
    from kourou.broker.telemetry.spans import BrokerSpans

_log = logging.getLogger("kourou.broker")

REGISTER_WAIT_S = 3.0
BUSY = "[REJECTREQUEST] too many requests are waiting at this broker; nothing was stored"
STOPPING = "the broker is stopping; nothing was done"
STARTING = "the broker is starting and recovers its store; nothing was stored"
CHANGING = "the broker is changing its role; nothing was done"


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
        self._store_runtime: StoreRuntime | None = None
        self._session: RoleSession | None = None
        self._registration: Registration | None = None
        self._acl_import: AclImport | None = None
        self._address_server: AddressServer | None = None
        self._admin: AdminHttp | None = None
        self._spans: BrokerSpans | None = None
        self._measurements = Measurements()
        callbacks = TransportCallbacks(
            self._arrived, self._lost, self._post, self._measurements.rpc
        )
        self._curve = settings.client_curve
        self._link = LeaderLink(callbacks, self._found_leader, self._clock, self._curve)
        questions = PageQuestions(self._post, self._clock)
        self._exporter = ExporterPage(questions, self._measurements, self._clock)
        self._listening = Listeners(
            settings, callbacks, self._clock, self.server_type, self._link, questions
        )
        self._bootstrap = Bootstrap(
            settings.broker_name,
            self._clock,
            self._leaders,
            self._restart_log,
            still=self._must_restart_log,
            curve=self._curve,
        )
        self._fail: Callable[[BaseException], None] = _raise
        self._renewing: asyncio.Task[None] | None = None
        self._due: TruncateLog | ChangeRole | RestartLog | None = None
        self._stopping = False
        self._served = False
        self._ready = False

    # -- lifecycle ----------------------------------------------------------------------------

    async def recover(self, fail: Callable[[BaseException], None]) -> None:
        """Listen, open the store, rebuild the control state, connect the core to its executors.

        All ports are bound first, so that a port in use leaves the store unchanged. Requests that
        arrive before the core is ready get the reply that the broker is starting.
        """
        self._fail = fail
        self._spans = broker_spans(self.settings, os.environ, f"kourou-{self.name}")
        await self._listen()
        await self._open()

    async def _listen(self) -> None:
        settings = self.settings
        self._listening.listen()
        if settings.admin_port is not None:
            admin = AdminHttp(
                settings.admin_host, settings.admin_port, self._pages(), settings.http_tls
            )
            await admin.start()
            self._admin = admin

    async def _open(self) -> None:
        """Open the store and create everything that works on it."""
        opened = await asyncio.to_thread(open_store, self.settings, self._disk)
        protocols, callbacks = self._listening.protocols, self._runtime_callbacks()
        try:
            self._store_runtime = StoreRuntime(
                self.settings,
                opened,
                self._clock,
                protocols,
                callbacks,
                self._spans,
                self._measurements,
            )
            self._opened(self._store_runtime)
            self._session = self._connected(opened.recovered.control, None)
        except BaseException:
            opened.close()
            raise

    def _runtime_callbacks(self) -> RuntimeCallbacks:
        """Return the callbacks for the effect executors."""
        return RuntimeCallbacks(self._post, self._register_now, self._fail)

    def _opened(self, store_runtime: StoreRuntime) -> None:
        """Called when the store is open, before a core works on it.

        Raises ConfigError at the start of the process.
        """
        if not self._served:
            _check_replicas(self.settings, store_runtime.opened.recovered.control)

    def _connected(self, control: ControlState, change: ChangeRole | None) -> RoleSession:
        """Create a core on the open store; `change` is its new role, or None at a start."""
        assert self._store_runtime is not None
        context = SessionContext(
            clock=self._clock,
            listening=self._listening,
            measurements=self._measurements,
            refuse=self._refuse,
            failed=self._fail,
            renew=self._renew,
            begin=lambda effect: self._bootstrap.request(
                RestartRequest(effect.position, effect.common)
            ),
            performers=self._performers(),
        )
        role = self._role(self._store_runtime.store, control, change)
        return RoleSession(self.settings, self._store_runtime, control, context, role)

    def _performers(self) -> Mapping[type[Effect], Callable[[Any], None]]:
        """Executors for effects that only some roles have."""
        return {}

    def _role(self, store: Store, control: ControlState, change: ChangeRole | None) -> RoleSettings:
        return role_of(self.settings, store, control.replicas, change)

    async def serve(self) -> Mapping[str, str]:
        """Record the start-up events, start to serve, and register with the name servers."""
        assert self._session is not None
        await self._session.begin()
        self._served = self._ready = True
        self._import_users()
        self._follow()
        await self._find_name_servers()
        listening = self._listening.addresses
        if self._admin is not None:
            listening["admin"] = self._admin.url
        return listening

    def _import_users(self) -> None:
        """Import the users of files when these change; only a leader records them."""
        path, clock = self.settings.acl_import_dir, self._clock
        if path is not None:
            self._acl_import = AclImport(
                path,
                self.settings.cluster_name,
                clock,
                lambda found: self._post(UsersRead(found, clock.now_ms())),
                self._fail,
            )
            self._acl_import.start()

    async def drain(self) -> None:
        """Unregister from the name servers, finish pending requests, accept no new ones."""
        self._ready, self._stopping = False, True
        await self._bootstrap.stop()
        await self._renewed()
        await self._leave_name_servers()
        self._listening.pause_clients()
        session = self._session
        if session is not None and not session.over:
            deadline_ms = self._clock.monotonic_ms() + self.settings.sync_flush_timeout_ms
            await session.drain(deadline_ms)
        self._listening.protocols.pause()

    async def stop(self) -> None:
        """Record consumer progress, flush and close everything."""
        self._stopping = True
        if self._acl_import is not None:
            await self._acl_import.stop()
        await self._bootstrap.stop()
        await self._renewed()
        if self._admin is not None:
            await self._admin.stop()
        await self._leave_name_servers()
        session, store_runtime = self._session, self._store_runtime
        if session is not None and store_runtime is not None and not store_runtime.closed:
            session.cease()
            for to in session.history.stop():
                self._answer(to, Code.SERVICE_NOT_AVAILABLE, STOPPING)
            session.last_records()
            await store_runtime.close()
        self._listening.protocols.close()
        if self._spans is not None:
            await asyncio.to_thread(self._spans.close)

    def open_because(self) -> str:
        """Why its own table lets everybody in: without users, or if refusals are not enforced."""
        return self._view().control.access.open_because

    # -- role sessions ------------------------------------------------------------------------

    def _restart_log(self, known: RestartLog) -> None:
        """The leader has returned the state before its log: restart this log at that position."""
        session = self._session
        if session is not None and not session.over and not session.leads:
            session.cease()
            self._renew(known)

    def _must_restart_log(self) -> bool:
        """Must the log still restart? Not if the current leader has the bytes that it lacks."""
        return not self._is_following

    def _leaders(self) -> Sequence[str]:
        return [self._link.address] if self._link.address else []

    def _renew(self, why: TruncateLog | ChangeRole | RestartLog) -> None:
        """Replace the role session on the same store; the core has requested it and is idle.

        A request that arrives during the replacement is executed next.
        """
        if self._renewing is None:
            self._renewing = asyncio.get_running_loop().create_task(self._take_over(why))
        else:
            self._due = why

    async def _take_over(self, why: TruncateLog | ChangeRole | RestartLog | None) -> None:
        """Replace the role session as long as another replacement is due.

        A failure ends the process: it changes nothing that a restart would not find.
        """
        try:
            while why is not None:
                await self._another_session(why)
                why, self._due = self._due, None
        except Exception as error:  # noqa: BLE001 - without a core there is nothing to serve with
            _log.critical(
                "role-change-failed: the broker cannot continue in its new role: %(error)s",
                {"error": error},
            )
            self._fail(error)
        finally:
            self._renewing = None

    async def _another_session(self, why: TruncateLog | ChangeRole | RestartLog) -> None:
        """End a role session and start the next one. Listeners and connections stay open.

        The store stays open, except when the log is truncated or restarted.
        """
        session, store_runtime = self._session, self._store_runtime
        assert session is not None
        assert store_runtime is not None
        self._ready = False
        self._link.part()
        for to in session.release():
            self._answer(to, Code.SERVICE_NOT_AVAILABLE, CHANGING)
        session.last_records()
        if isinstance(why, TruncateLog):
            position, confirmed = why.position, why.confirmed
            await store_runtime.close(lambda store: store.cut(position, confirmed))
        elif isinstance(why, RestartLog):
            await store_runtime.close(why.leave, settle=False)
        if self._stopping:
            return
        if isinstance(why, ChangeRole):
            self._session = self._connected(session.view.control, why)
        else:
            await self._open()
        await self._start_session(led=session.leads)

    async def _start_session(self, *, led: bool) -> None:
        session = self._session
        assert session is not None
        await session.begin()
        if session.leads != led:
            _log.warning(
                "role-changed: this broker is now %(role)s",
                {"role": "the leader" if session.leads else "a follower"},
            )
        self._ready = not self._stopping
        if self._stopping:
            return
        self._follow()
        if session.leads != led:
            # The broker registers in its new role; its former registration is removed first.
            await self._leave_name_servers()
            await self._find_name_servers()
        elif self._registration is not None:
            self._registration.register_now(0)  # the epoch has changed, topics may have changed

    async def _renewed(self) -> None:
        """Wait for a replacement in progress, because it uses the store."""
        if self._renewing is not None:
            await asyncio.gather(self._renewing, return_exceptions=True)

    # -- the leader ---------------------------------------------------------------------------

    def _follow(self) -> None:
        """Connect to the leader, as soon as its address is known; does nothing on a leader."""
        if not self._session_leads:
            self._link.follow(self.settings.leader_endpoint or self._link.address)

    @property
    def _session_leads(self) -> bool:
        return self._session is None or self._session.leads

    @property
    def _is_following(self) -> bool:
        """Is no search for a leader needed?

        True on a leader, and on a follower that is connected and copies.
        """
        if self._session_leads:
            return True
        return self._link.connected and self._view().is_copying

    def _registered(self, answer: RegisterBrokerResponse) -> None:
        """Handle a name server's reply, which names the leader.

        A leader that is being followed is kept, because it may have newer information.
        """
        if self._session_leads or self._session_is_over:
            return
        self._link.leader = answer.master_addr or self._link.leader
        if self.settings.leader_endpoint or not answer.ha_server_addr:
            return
        if not self._is_following:
            self._link.follow(answer.ha_server_addr)

    def _found_leader(self, peer: Peer, address: str) -> None:
        self._post(LeaderConnected(peer, address))

    # -- name servers -------------------------------------------------------------------------

    async def _find_name_servers(self) -> None:
        addresses, url = self.settings.name_server_endpoints, self.settings.name_server_list_url
        if not addresses and not url:
            _log.warning(
                "name-servers-missing: namesrvAddr is not set: clients cannot find this broker "
                "through a name server"
            )
            return
        # Also a local variable: a change of role may unregister in the meantime.
        registration = self._registration = self._register_with(addresses)
        registration.start()
        if url:
            listed = self._address_server = AddressServer(url, registration.follow)
            listed.start()
            await listed.first(REGISTER_WAIT_S)
        await registration.first(REGISTER_WAIT_S)

    async def _leave_name_servers(self) -> None:
        if self._address_server is not None:
            await self._address_server.stop()
        if self._registration is not None:
            await self._registration.stop()
        self._address_server = self._registration = None

    def _identity(self) -> RegistrationIdentity:
        settings = self.settings
        listeners = settings.listeners(self._listening.dial)
        return RegistrationIdentity(
            settings.cluster_name,
            settings.broker_name,
            MASTER_ID if self._session_leads else settings.broker_id,
            listeners.get("tcp:internal") or listeners["zmq:internal"],
            self._listening.members_address,
            dict(listeners),
        )

    def _register_with(self, addresses: Sequence[str]) -> Registration:
        settings = self.settings
        return Registration(
            addresses,
            self._identity(),
            lambda: registered_topics(self._view().control, self._view().policy.permission),
            period_ms=settings.register_period_ms,
            timeout_ms=settings.register_timeout_ms,
            completed=self._registration_completed,
            filter_listeners=lambda: self._view().filter_listeners,
            users=lambda: self._view().control.access,
            epoch=lambda: self._view().control.replicas.epoch,
            promotion=lambda: self._view().control.replicas.promotion,
            fenced=lambda epoch: self._post(Fenced(epoch)),
            answered=self._registered,
            hurry=lambda: not self._is_following,
            curve=self._curve,
        )

    def _view(self) -> CoreView:
        """Return the state of the current role session, or of the last one."""
        assert self._session is not None
        return self._session.view

    def _register_now(self, number: int) -> None:
        if self._registration is not None:
            self._registration.register_now(number)
        else:
            self._registration_completed(number)

    def _registration_completed(self, number: int) -> None:
        self._post(RegistrationDone(number))

    # -- requests -----------------------------------------------------------------------------

    @property
    def _session_is_over(self) -> bool:
        return self._session is None or self._session.over

    def _arrived(self, received: list[Received]) -> None:
        if self._session is None or self._session.over:
            why = STARTING if self._session is None else CHANGING
            for early in received:
                self._answer(early.to, Code.SERVICE_NOT_AVAILABLE, why)
        else:
            self._admit(self._session, received)

    def _admit(self, session: RoleSession, received: list[Received]) -> None:
        if self._spans is None:
            session.offer_all(received)
        else:
            self._spans.handle(received, session.offer_all)

    def _lost(self, peer: Peer) -> None:
        if self._spans is not None:
            self._spans.disconnected(peer)
        self._post(Disconnected(peer))
        if peer.protocol == LeaderLink.name and self._registration is not None:
            self._registration.register_now(0)  # name servers may know another leader by now

    def _refuse(self, item: Input) -> None:
        if isinstance(item, Received):
            self._answer(item.to, Code.SYSTEM_BUSY, BUSY)
            if self._spans is not None:
                self._spans.refused(item.to, Code.SYSTEM_BUSY, BUSY)

    def _answer(self, to: ReplyTo, code: int, remark: str) -> None:
        self._listening.protocols.reply(Reply(to, code, remark))
        self._measurements.rpc.answered(to, code)

    def _post(self, item: Input) -> None:
        if self._session is not None and not self._session.over:
            self._session.loop.post(item)

    # -- pages --------------------------------------------------------------------------------

    def _pages(self) -> AdminPages:
        return AdminPages(
            healthy=lambda: "" if self._is_healthy() else "stopped",
            ready=self._unready,
            metrics=lambda: (
                b"" if self._store_runtime is None else self._store_runtime.report.metrics()
            ),
            config=lambda: render(self.settings, explained=False),
            statistics=self._statistics,
            exporter=self._exporter_page,
        )

    async def _exporter_page(self) -> bytes:
        session, store_runtime = self._session, self._store_runtime
        if session is None or store_runtime is None or session.over:
            return b""
        address = f"{self.settings.broker_ip}:{self._listening.store_port}"
        asked = await self._exporter.asked(session.view)
        return exporter_page(
            self._view(),
            store_runtime.store,
            store_runtime.report.table(),
            asked,
            address=address,
            wall_ms=self._clock.now_ms(),
        )

    def _is_healthy(self) -> bool:
        if not self._served or self._renewing is not None:
            return True
        return self._session is not None and self._session.loop.running

    def _unready(self) -> str:
        if self._ready and not self._session_is_over:
            return ""
        return "not serving" if self._served else "starting"

    def _statistics(self) -> Mapping[str, Any]:
        if self._session is None:
            return {"starting": True}
        registration = self._registration
        return {
            **self._session.statistics(),
            "name_servers": {} if registration is None else registration.registered,
        }


def broker_spans(
    settings: BrokerSettings, environment: Mapping[str, str], service: str
) -> BrokerSpans | None:
    """Return a broker's spans and start their export; None without tracing. Raises ConfigError."""
    options = tracing_options(
        environment,
        service_name=service,
        endpoint=settings.trace_otlp_endpoint or "",
        instance=settings.broker_name,
    )
    if options is None:
        return None
    from kourou.broker.telemetry.spans import BrokerSpans  # only tracing needs OpenTelemetry

    return BrokerSpans(start_export(options))


def _check_replicas(settings: BrokerSettings, control: ControlState) -> None:
    """Raises ConfigError if the log has users, and replicas that would be refused."""
    users = control.access.active or settings.administrator_files or settings.users_file
    replicas = control.replicas.epochs or settings.raft_enabled
    if users and replicas and not settings.knows_replicas:
        raise ConfigError(REPLICAS_UNKNOWN, hint=REPLICAS_UNKNOWN_HINT)


def _raise(error: BaseException) -> None:
    raise error
