"""A static pair in memory: two real cores, and a connection between them that a test controls.

Messages wait in a list until `deliver`, so that a test can inspect them, lose them with the
connection, or kill one side first. A power loss removes unflushed data from a log.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kourou.engine.inputs import Flushed, LeaderConnected
from kourou.engine.policy import BrokerPolicy
from kourou.engine.roles.follower import FollowerRole
from kourou.protocol.request import Request
from kourou.replication.epochs import TruncateLog
from kourou.runtime import Buffer, Disconnected, Peer
from kourou_rigs.engine import Engine, MemoryStore

WIRE = 1_000_000
"""Peer numbers of this connection; each new connection has its own."""
ENDLESS = 2_000
"""More messages than this are considered an endless exchange."""
Spoken = tuple[Request, Sequence[Buffer]]


class Pair:
    """A leader and one follower with brokerId 1."""

    def __init__(
        self,
        *,
        sync: bool = False,
        ack_on_flush: bool = False,
        segment_size: int = 1 << 20,
        uncopied: bool = False,
    ) -> None:
        """`uncopied`: the store of the follower says that its copy was never complete."""
        self.sync, self.ack_on_flush, self.uncopied = sync, ack_on_flush, uncopied
        self.segment_size = segment_size
        self.leader = self._make_leader(None)
        self.follower = self._make_follower(None, None)
        self.to_leader: list[Spoken] = []
        self.to_follower: list[Spoken] = []
        self.flushed_leader = self.leader.store.end
        self.flushed_follower = 0
        self._wire = WIRE
        self.connected = False

    def _policy(self, broker_id: int) -> BrokerPolicy:
        return BrokerPolicy("DefaultCluster", "broker-a", broker_id)

    def _make_leader(self, left: MemoryStore | None, now_ms: int = 1_000) -> Engine:
        return Engine(
            policy=self._policy(0), left=left, leads=True, sync=self.sync,
            ack_on_flush=self.ack_on_flush, now_ms=now_ms, segment_size=self.segment_size,
        )  # fmt: skip

    def _make_follower(
        self, left: MemoryStore | None, accept: int | None, now_ms: int = 1_000
    ) -> Engine:
        store = MemoryStore(self.segment_size) if left is None else left
        return Engine(
            policy=self._policy(1), left=store, role=FollowerRole("10.0.0.1:10911", accept),
            now_ms=now_ms, segment_size=self.segment_size, uncopied=self.uncopied,
        )  # fmt: skip

    # -- the connection ---------------------------------------------------------------------------

    @property
    def peer(self) -> Peer:
        """The connection's peer, the same for both sides."""
        return replace(self.leader.peer(self._wire), protocol="leader")

    def connect(self) -> None:
        """Open a new connection."""
        self._wire += 1
        self.connected = True
        self.follower.handle(LeaderConnected(self.peer))
        self.take()

    def disconnect(self) -> None:
        """Close the connection; messages in flight are lost."""
        self.to_leader, self.to_follower = [], []
        if self.connected:
            self.connected = False
            self.leader.handle(Disconnected(self.peer))
            self.follower.handle(Disconnected(self.peer))
        self.take()

    def take(self) -> None:
        """Move all sent messages to the connection; a requested truncation is executed at once."""
        for engine, wire in ((self.leader, self.to_follower), (self.follower, self.to_leader)):
            for notice in engine.notices:
                if notice.peer.id == self._wire and self.connected:
                    wire.append((notice.request, notice.body))
            engine.notices = [one for one in engine.notices if one.peer.id < WIRE]
        effects, self.follower.effects = self.follower.effects, []
        for effect in effects:
            if isinstance(effect, TruncateLog):
                assert effect.position >= effect.confirmed, "what counted would be cut"
                self.cut_follower(effect.position)
                return

    def deliver(self, count: int = ENDLESS) -> int:
        """Deliver messages in order, until `count` are delivered or none is in flight."""
        arrived = 0
        while arrived < count and (self.to_leader or self.to_follower):
            assert arrived < ENDLESS - 1, "both talk without end"
            if self.to_follower:
                self._arrive(self.follower, *self.to_follower.pop(0))
            else:
                self._arrive(self.leader, *self.to_leader.pop(0))
            arrived += 1
        return arrived

    def _arrive(self, engine: Engine, request: Request, body: Sequence[Buffer]) -> None:
        _, received = engine.received(request, *body, peer=self._wire)
        engine.handle(replace(received, to=replace(received.to, peer=self.peer, oneway=True)))
        self.take()

    # -- time and crashes -------------------------------------------------------------------------

    def advance(self, ms: int) -> None:
        """Advance the time of both."""
        self.leader.advance(ms)
        self.follower.advance(ms)
        self.take()

    def settle(self) -> None:
        """Deliver and flush everything until both sides have processed the results."""
        for _ in range(3):
            self.deliver()
            self.flush()
            self.advance(1_000)
        self.deliver()

    def flush(self) -> None:
        """Report everything as flushed on both sides."""
        self.flush_leader()
        self.flush_follower()

    def flush_leader(self) -> None:
        """Report everything as flushed on the leader."""
        self.flushed_leader = self.leader.store.end
        self.leader.handle(Flushed(self.flushed_leader))
        self.take()

    def flush_follower(self) -> None:
        """Report everything as flushed on the follower."""
        self.flushed_follower = self.follower.store.end
        self.follower.handle(Flushed(self.flushed_follower))
        self.take()

    def cut_follower(self, position: int) -> None:
        """Truncate the follower's log at `position` and restart it."""
        self.disconnect()
        self._follow(self.follower.store.cut(position), position, None)

    def crash_leader(self, *, power: bool = False) -> None:
        """Restart the leader after a crash; `power`: without unflushed data."""
        self.disconnect()
        store, now_ms = self.leader.store, self.leader.now_ms
        left = store.cut(self.flushed_leader if power else store.end)
        self.leader = self._make_leader(left, now_ms)
        self.flushed_leader = self.leader.store.end

    def crash_follower(self, *, power: bool = False, accept: int | None = None) -> None:
        """Restart the follower after a crash; `accept`: see FollowerRole."""
        self.disconnect()
        store = self.follower.store
        end = self.flushed_follower if power else store.end
        self._follow(store.cut(end), end, accept)

    def _follow(self, left: MemoryStore, end: int, accept: int | None) -> None:
        self.follower = self._make_follower(left, accept, self.follower.now_ms)
        self.flushed_follower = self.follower.store.end
        assert self.flushed_follower <= end
        self.take()
