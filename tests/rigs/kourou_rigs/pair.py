"""A static pair in memory: two real cores, and a wire between them that a test holds in its hands.

What one says waits in a list until `deliver`, so a test may look at it, lose it with the
connection, or let one side die first. A loss of power takes from a log what was not flushed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kourou.engine.effects import CutLog
from kourou.engine.following import FollowerRole
from kourou.engine.inputs import Flushed, LeaderConnected
from kourou.engine.policy import BrokerPolicy
from kourou.protocol.request import Request
from kourou.runtime.inputs import Buffer, Disconnected
from kourou.runtime.peer import Peer
from kourou_rigs.engine import Engine, MemoryStore

WIRE = 1_000_000
"""Numbers of the peers at the ends of wires; each new connection has one of its own."""
ENDLESS = 2_000
"""Messages after which no more are expected."""
Spoken = tuple[Request, Sequence[Buffer]]


class Pair:
    """A leader, and one follower of brokerId 1."""

    def __init__(
        self, *, sync: bool = False, ack_on_flush: bool = False, segment_size: int = 1 << 20
    ) -> None:
        self.sync, self.ack_on_flush = sync, ack_on_flush
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
            now_ms=now_ms, segment_size=self.segment_size,
        )  # fmt: skip

    # -- the wire ---------------------------------------------------------------------------------

    @property
    def peer(self) -> Peer:
        """The wire as both see it."""
        return self.leader.peer(self._wire)

    def connect(self) -> None:
        """A new connection between both."""
        self._wire += 1
        self.connected = True
        self.follower.handle(LeaderConnected(self.peer))
        self.take()

    def disconnect(self) -> None:
        """The connection is gone, with what was on its way."""
        self.to_leader, self.to_follower = [], []
        if self.connected:
            self.connected = False
            self.leader.handle(Disconnected(self.peer))
            self.follower.handle(Disconnected(self.peer))
        self.take()

    def take(self) -> None:
        """Put what both have said onto the wire; a cut that is asked for is done at once."""
        for engine, wire in ((self.leader, self.to_follower), (self.follower, self.to_leader)):
            for notice in engine.notices:
                if notice.peer.id == self._wire and self.connected:
                    wire.append((notice.request, notice.body))
            engine.notices = [one for one in engine.notices if one.peer.id < WIRE]
        effects, self.follower.effects = self.follower.effects, []
        for effect in effects:
            if isinstance(effect, CutLog):
                assert effect.position >= effect.confirmed, "what counted would be cut"
                self.cut_follower(effect.position)
                return

    def deliver(self, count: int = ENDLESS) -> int:
        """Let messages arrive, in their order, until `count` have or nothing is on its way."""
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
        engine.handle(replace(received, to=replace(received.to, oneway=True)))
        self.take()

    # -- life and death ---------------------------------------------------------------------------

    def advance(self, ms: int) -> None:
        """Time passes for both."""
        self.leader.advance(ms)
        self.follower.advance(ms)
        self.take()

    def settle(self) -> None:
        """All that is on its way arrives, disks catch up, and both have heard of it."""
        for _ in range(3):
            self.deliver()
            self.flush()
            self.advance(1_000)
        self.deliver()

    def flush(self) -> None:
        """Both disks catch up."""
        self.flush_leader()
        self.flush_follower()

    def flush_leader(self) -> None:
        """The leader's disk catches up."""
        self.flushed_leader = self.leader.store.end
        self.leader.handle(Flushed(self.flushed_leader))
        self.take()

    def flush_follower(self) -> None:
        """The follower's disk catches up."""
        self.flushed_follower = self.follower.store.end
        self.follower.handle(Flushed(self.flushed_follower))
        self.take()

    def cut_follower(self, position: int) -> None:
        """The follower gives up what lies from `position` on, and starts again."""
        self.disconnect()
        self._follow(self.follower.store.cut(position), position, None)

    def crash_leader(self, *, power: bool = False) -> None:
        """The leader dies and starts again; `power`: without what was not flushed."""
        self.disconnect()
        store, now_ms = self.leader.store, self.leader.now_ms
        left = store.cut(self.flushed_leader if power else store.end)
        self.leader = self._make_leader(left, now_ms)
        self.flushed_leader = self.leader.store.end

    def crash_follower(self, *, power: bool = False, accept: int | None = None) -> None:
        """The follower dies and starts again; `accept`: see FollowerRole."""
        self.disconnect()
        store = self.follower.store
        end = self.flushed_follower if power else store.end
        self._follow(store.cut(end), end, accept)

    def _follow(self, left: MemoryStore, end: int, accept: int | None) -> None:
        self.follower = self._make_follower(left, accept, self.follower.now_ms)
        self.flushed_follower = self.follower.store.end
        assert self.flushed_follower <= end
        self.take()
