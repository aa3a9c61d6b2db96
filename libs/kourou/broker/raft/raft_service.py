"""A replica of a Raft group as a process: a broker whose role its group decides.

Every start begins as a follower. A leading core is deposed immediately, within the iteration in
which the Raft core reports it. One task creates its replacement; it repeats this until the broker
core has the role of the Raft core:

    leads epoch e         a core that opens e with its first record, after copied bytes took effect
    any other role        a core that follows
    log truncated, reset  the store is closed, changed and reopened with a core that follows

State: soft; the log contains the decisions, the vote file the votes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any

from kourou.broker.broker_service import CHANGING, BrokerService
from kourou.broker.config import BrokerSettings
from kourou.broker.part_settings import raft_settings_of
from kourou.broker.raft.peer_links import PeerLinks, raft_messages
from kourou.broker.raft.raft_group import GroupCallbacks, RaftGroup, VoteWriter
from kourou.broker.storage.bootstrap import RestartLog, RestartRequest
from kourou.broker.storage.store_runtime import RuntimeCallbacks, StoreRuntime
from kourou.clock import Clock
from kourou.engine.admin.access_gate import REPLICAS_UNKNOWN, REPLICAS_UNKNOWN_HINT
from kourou.engine.control import ControlState
from kourou.engine.effects import ChangeRole, Effect, Forward
from kourou.engine.roles.quorum import QuorumFollowerRole, QuorumLeaderRole
from kourou.engine.roles.role import RoleSettings
from kourou.errors import Code, ConfigError, KourouError
from kourou.protocol.messages.namesrv import RegisterBrokerResponse
from kourou.replication.epochs import TruncateLog
from kourou.replication.raft import effects as raft_effects
from kourou.replication.raft.inputs import LogRestarted, LogTruncated, TransferLeadership
from kourou.runtime import Received, Reply
from kourou.store.disk import Disk
from kourou.store.real_disk import RealDisk
from kourou.store.store import Store
from kourou.transport.rate_limited_log import RateLimitedLog

_log = logging.getLogger("kourou.raft")

DEPOSED = "this replica is no longer the leader; another replica may be"
RETRY_S = 0.05
LEAD_RETRY_MS = 1_000
"""After a failure to open its epoch, a replica follows this long, so that another can lead."""

TRANSFER_MS = 2_000
POLL_S = 0.01

LogChange = TruncateLog | RestartLog


class RaftService(BrokerService):
    """Implements kourou.service.lifecycle.Service."""

    name = "ha-replica"

    def __init__(
        self, settings: BrokerSettings, clock: Clock | None = None, disk: Disk | None = None
    ) -> None:
        super().__init__(settings, clock, disk)
        self._links = PeerLinks(
            settings.raft_self or "",
            settings.raft_peers,
            reply=self._measurements.rpc.watching(self._reply),
            clock=self._clock,
            curve=self._curve,
        )
        self._listening.protocols.add(self._links)
        callbacks = GroupCallbacks(
            role=self._role_changed,
            cut=self._change_log,
            begin=self._request_restart,
            post=self._post,
            failed=self._failed,
        )
        self._group = RaftGroup(
            raft_settings_of(settings),
            self._clock,
            self._links,
            Random(),
            callbacks,
            settings.preferred_leader_id,
            born_anyway=settings.raft_new_group,
        )
        self._vote: VoteWriter | None = None
        #: The epoch that the core leads; 0 if it follows.
        self._led = 0
        self._lead_at_ms = 0
        self._log_change: LogChange | None = None
        self._broken = False
        self._complaints = RateLimitedLog(_log, self._clock)

    # -- lifecycle ---------------------------------------------------------------------------------

    def _runtime_callbacks(self) -> RuntimeCallbacks:
        return RuntimeCallbacks(
            self._post, self._register_now, self._failed, self._group.appended, self._group.flushed
        )

    def _opened(self, store_runtime: StoreRuntime) -> None:
        """Prepare the Raft replica with the store, once per process."""
        super()._opened(store_runtime)
        if self._vote is not None:
            return
        if len(self.settings.raft_peers) == 2:
            _log.warning(
                "raft-group-small: a Raft group of two replicas stops when one of them is offline, "
                "since its majority is two. Use three replicas, which can lose one, or a leader "
                "with a follower (brokerRole), which continues without one of them"
            )
        recovered = store_runtime.opened.recovered
        if recovered.imported:
            raise ConfigError(
                f"another broker made {len(recovered.imported)} changes to config/*.json of "
                "this store, which only a leader can record",
                hint="start `kourou broker` on this store once, then the group; or delete the "
                "config folder of the store to use the state of the group",
            )
        self._vote = VoteWriter(
            self._disk or RealDisk(),
            store_runtime.store.paths,
            saved=self._group.vote_saved,
            failed=self._failed,
        )
        epochs = recovered.control.replicas.epochs
        copies = None if self._spans is None else self._spans.copies
        self._group.prepare(store_runtime, epochs, self._vote, self._identity().broker_addr, copies)

    def _follow(self) -> None:
        """Join the group when the broker serves; the group decides which leader it follows."""
        self._group.open()

    async def drain(self) -> None:
        """Transfer leadership to another replica, then drain like any broker."""
        await self._transfer_leadership()
        await super().drain()

    async def _transfer_leadership(self) -> None:
        """Transfer leadership, so that others need not wait for a timeout. It may fail."""
        session = self._session
        if not self._led or session is None or session.over:
            return
        self._listening.pause_clients()
        deadline_ms = self._clock.monotonic_ms() + TRANSFER_MS
        await session.drain(deadline_ms)
        session.last_records()
        self._group.transfer_leadership("")
        while self._led and self._clock.monotonic_ms() < deadline_ms:  # noqa: ASYNC110 - no event
            await asyncio.sleep(POLL_S)

    async def stop(self) -> None:
        """Leave the group, then close everything."""
        self._stopping = True
        await self._group.stop()
        await super().stop()

    def _failed(self, error: BaseException) -> None:
        """Handle a failure: acknowledge nothing more to the group, and end the process."""
        self._broken = True
        self._group.store_failed(str(error))
        self._fail(error)

    def _reply(self, reply: Reply) -> None:
        """Send the leader's reply to a forwarded request."""
        assert self._store_runtime is not None
        self._store_runtime.performers[Reply](reply)

    # -- role changes ------------------------------------------------------------------------------

    def _role(self, store: Store, control: ControlState, change: ChangeRole | None) -> RoleSettings:
        del store, control, change
        if self._led:
            return QuorumLeaderRole(self._led, self._group, self.settings.slave_timeout_ms)
        return QuorumFollowerRole(self._group)

    def _performers(self) -> Mapping[type[Effect], Callable[[Any], None]]:
        return {
            Forward: self._links.forward,
            TransferLeadership: lambda effect: self._group.transfer_leadership(effect.target),
        }

    def _role_changed(self, _now: raft_effects.RoleChanged) -> None:
        """Depose a leading core before anything else happens."""
        session = self._session
        deposed = self._led and not self._group.leads(self._led)
        if deposed and self._spans is not None:
            self._spans.copies.abandon()
        if deposed and session is not None and not session.over:
            session.depose(DEPOSED)
        self._settle()

    def _change_log(self, change: LogChange) -> None:
        """End the core, truncate or restart the log, and reopen the store."""
        self._log_change = change
        self._group.detach()
        if self._session is not None:
            self._session.cease()
        self._settle()

    def _request_restart(self, effect: raft_effects.DiscardLog) -> None:
        confirmed = self._view().committed
        self._bootstrap.request(RestartRequest(effect.position, confirmed, effect.epoch))

    def _restart_log(self, known: RestartLog) -> None:
        """Restart the log, unless another leader has made that unnecessary in the meantime."""
        if self._group.may_begin(known.position, known.epoch):
            self._change_log(known)

    def _must_restart_log(self) -> bool:
        """Does it lack bytes that the current leader lacks, too?"""
        return self._group.wants_to_begin

    def _leaders(self) -> Sequence[str]:
        """Return the replicas that may have the state before the leader's log; the leader first."""
        peers, leader = self.settings.raft_peers, self._group.leader
        others = [name for name in peers if name != self._group.member]
        return [peers[name] for name in sorted(others, key=lambda name: name != leader)]

    def _settle(self) -> None:
        if self._renewing is None and self._served and not (self._stopping or self._broken):
            self._renewing = asyncio.get_running_loop().create_task(self._until_settled())

    async def _until_settled(self) -> None:
        """Replace cores until the core has the replica's role. A failure ends the process."""
        try:
            while not self._stopping and await self._step():
                pass
        except Exception as error:  # noqa: BLE001 - without a core there is nothing to serve with
            _log.critical(
                "replica-role-failed: the replica cannot continue in its new role", exc_info=error
            )
            self._failed(error)
        finally:
            self._renewing = None
            self._ready = not (self._stopping or self._broken)

    async def _step(self) -> bool:
        """Make one change; False if none was needed."""
        session = self._session
        assert session is not None
        if self._log_change is not None:
            await self._open_again(self._log_change)
        elif (epoch := self._group.leading_epoch) != self._led or session.over:
            # Copied bytes take effect in a core that follows, so no core leads before that.
            await self._new_core(0 if session.over else epoch)
        else:
            return False
        return True

    async def _open_again(self, change: LogChange) -> None:
        """Truncate or restart the log, and follow."""
        session, store_runtime = self._session, self._store_runtime
        assert session is not None
        assert store_runtime is not None
        self._end(CHANGING)
        if isinstance(change, TruncateLog):
            await store_runtime.close(lambda store: store.cut(change.position, change.confirmed))
        else:
            await store_runtime.close(change.leave, settle=False)
        self._led = 0
        await self._open()
        assert self._store_runtime is not None
        self._log_change = None
        done: LogTruncated | LogRestarted = LogTruncated()
        if isinstance(change, RestartLog):
            done = LogRestarted(change.position, change.epoch)
        await self._begin()
        self._group.attach(self._store_runtime, done)

    async def _new_core(self, epoch: int) -> None:
        """Start a core on the open store that leads `epoch`, or follows (0)."""
        old = self._session
        assert old is not None
        waits = self._clock.monotonic_ms() < self._lead_at_ms
        if epoch and (waits or not old.catch_up()):
            await asyncio.sleep(RETRY_S)  # e.g. a full disk delays the projection
            return
        self._end(CHANGING)
        self._led = epoch
        self._session = self._connected(old.view.control, None)
        try:
            await self._begin()
        except KourouError as error:
            _log.warning(
                "leadership-refused: this replica cannot lead epoch %(epoch)d: %(error)s",
                {"epoch": epoch, "error": error},
            )
            self._session.cease()
            self._lead_at_ms = self._clock.monotonic_ms() + LEAD_RETRY_MS
            self._group.transfer_leadership("")

    def _end(self, why: str) -> None:
        """End the current core, and reply to its pending requests."""
        session = self._session
        assert session is not None
        session.cease()
        for to in session.release():
            self._answer(to, Code.SERVICE_NOT_AVAILABLE, why)

    async def _begin(self) -> None:
        assert self._session is not None
        if await self._session.begin() and self._registration is not None:
            self._registration.become(self._identity())

    # -- name servers ------------------------------------------------------------------------------

    @property
    def _is_following(self) -> bool:
        """Always true: the leader announces itself, so name servers are not queried."""
        return True

    def _registered(self, answer: RegisterBrokerResponse) -> None:
        """Do nothing: what name servers know of other replicas is not used."""

    # -- requests ----------------------------------------------------------------------------------

    def _arrived(self, received: list[Received]) -> None:
        said, rest = raft_messages(received)
        if said and self._trusts_replicas():
            self._group.received(said)
        if rest:
            super()._arrived(rest)

    def _trusts_replicas(self) -> bool:
        """Whether Raft messages are handled: replicas prove who they are, or there are no users.

        A replica without curveMembers refuses to start with users, but may have copied them since.
        """
        if self.settings.knows_replicas or self._session is None:
            return True
        if not self._session.view.control.access.active:
            return True
        self._complaints.warning(
            "replica-messages-dropped: dropped messages of replicas: %(reason)s; %(hint)s",
            {"reason": REPLICAS_UNKNOWN, "hint": REPLICAS_UNKNOWN_HINT},
        )
        return False
