"""A static leader's side: who follows this log, and what each follower is sent.

State: soft. A leader that starts again is asked anew by whoever followed it.

A chunk is at most CHUNK_BYTES_MAX of log bytes of one epoch and one segment, cut at records. An
answer makes room for the next chunk, so what a follower is sent never waits for a timer. An epoch's
bytes leave only when the record that opened it is on the leader's own disk (`opened_end`): what a
loss of power takes from the leader then always belongs to an epoch that another one follows, and
that is how a follower finds out which of its bytes the leader never had again.

Invariants:  nothing is sent before the epoch that it belongs to is flushed here
             one connection follows for one brokerId; a newer one takes its place
             once a higher epoch was heard of, nothing is sent any more (`fenced`)
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Protocol

from kourou.model.limits import (
    CHUNK_BYTES_MAX,
    CHUNK_WINDOW_BYTES_MAX,
    DAMAGE_LENGTH_MAX,
    FOLLOWERS_MAX,
)
from kourou.protocol.messages.replication import Attach, Attached, ChunkAck, LogChunk
from kourou.replication.epochs import Epochs
from kourou.replication.progress import Progress, State

HEARTBEAT_MS = 1_000
"""A follower at rest is told so often where the leader stands."""
SILENT_MS = 5_000
"""Who does not answer for so long is asked anew what it has."""
_CHUNKS_PER_TURN = 16
"""One follower that catches up must not keep all others waiting."""


class Chunk(Protocol):
    """Log bytes: `end` lies behind the filler, if one closes the segment; see kourou.store."""

    @property
    def data(self) -> memoryview:
        """The bytes."""
        ...

    @property
    def end(self) -> int:
        """Where the log goes on."""
        ...

    @property
    def damage(self) -> str:
        """Why these are no readable records; "" for good ones."""
        ...


class ChunkSource(Protocol):
    """The log that is shipped."""

    def read_chunk(self, position: int, limit: int, max_bytes: int) -> Chunk:
        """Whole records from `position` on; empty where nothing is written yet."""
        ...


@dataclass(frozen=True, slots=True)
class Shipment:
    """One message to one follower; `to` is what it attached with."""

    to: Hashable
    chunk: LogChunk
    data: memoryview


@dataclass(frozen=True, slots=True)
class Bounds:
    """Where the leader's log begins, how far it is written and on disk, and what may be read."""

    first: int
    end: int
    flushed: int
    confirmed: int


@dataclass(slots=True)
class Follower:
    """One attached follower. Times are monotonic ms; `told_confirmed` is what it knows of that."""

    to: Hashable
    broker_id: int
    progress: Progress
    sent_ms: int
    told_confirmed: int = -1


class Shipping:
    """Ships one log in one epoch. `opened_end`: where the record ends that opened it."""

    def __init__(self, cluster: str, broker_name: str, source: ChunkSource, epochs: Epochs) -> None:
        self._cluster = cluster
        self._broker_name = broker_name
        self._source = source
        self.epochs = epochs
        self.opened_end = 0
        self.leader = ""
        self.fenced = 0
        self._round = 0
        self._followers: dict[Hashable, Follower] = {}

    @property
    def epoch(self) -> int:
        """The leader's own."""
        return self.epochs.newest

    @property
    def followers(self) -> Sequence[Follower]:
        """Everybody who is attached."""
        return list(self._followers.values())

    def __bool__(self) -> bool:
        return bool(self._followers)

    def follower(self, to: Hashable) -> Follower | None:
        """Who follows over this connection."""
        return self._followers.get(to)

    # -- who follows ------------------------------------------------------------------------------

    def refusal(self, attach: Attach) -> str:
        """Why whoever asks for the log does not get it, whatever its bytes; "" if it may."""
        theirs, ours = (
            attach.cluster + "/" + attach.broker_name,
            self._cluster + "/" + self._broker_name,
        )
        if theirs != ours:
            return f"this is {ours}, and not {theirs}"
        if attach.broker_id <= 0:
            return f"brokerId={attach.broker_id} is not the brokerId of a follower"
        newest = attach.epochs[-1][0] if attach.epochs else 0
        if newest > self.epoch:
            self.fenced = max(self.fenced, newest)
            return f"this leader's epoch {self.epoch} has ended: epoch {newest} was opened"
        if self.fenced:
            return f"this leader's epoch {self.epoch} has ended"
        others = {each.broker_id for each in self._followers.values()}
        if len(others) >= FOLLOWERS_MAX and attach.broker_id not in others:
            return f"{FOLLOWERS_MAX} followers are connected already, the maximum"
        return ""

    def attach(self, now_ms: int, to: Hashable, attach: Attach, bounds: Bounds) -> Attached:
        """Somebody asks for the log, from where both logs part on; `refusal` has let it pass."""
        self._extend(bounds)
        common = self.epochs.common(attach.epochs, attach.end)
        refusal, begin_at = "", 0
        if not self.epochs.is_certain(attach.epochs):
            refusal = "none of its epochs is one of this leader's"
        elif common < bounds.first:
            begin_at = bounds.first  # nobody has any longer what it lacks
        if not refusal and not begin_at:
            for former in [one for one in self.followers if one.broker_id == attach.broker_id]:
                del self._followers[former.to]
            progress = Progress(str(attach.broker_id), common, now_ms)
            self._followers[to] = Follower(to, attach.broker_id, progress, now_ms - HEARTBEAT_MS)
        return Attached(
            broker_name=self._broker_name,
            broker_id=attach.broker_id,
            epoch=self.epoch,
            common=common,
            refusal=refusal,
            begin_at=begin_at,
        )

    def detach(self, to: Hashable) -> Follower | None:
        """The connection is gone; returns who followed over it."""
        return self._followers.pop(to, None)

    # -- answers ----------------------------------------------------------------------------------

    def answered(self, now_ms: int, to: Hashable, ack: ChunkAck) -> Follower | None:
        """A follower tells what it has; None if it is nobody's word, or that of another epoch."""
        if ack.epoch > self.epoch and ack.group == self._broker_name:
            self.fenced = max(self.fenced, ack.epoch)
        follower = self._followers.get(to)
        if follower is None or ack.epoch != self.epoch or ack.group != self._broker_name:
            return None
        if ack.accepted:
            follower.progress.accepted(now_ms, ack.round, ack.written, ack.flushed)
        else:
            common = self.epochs.common(ack.epochs, ack.end)
            certain = self.epochs.is_certain(ack.epochs)
            follower.progress.refused(now_ms, ack.round, common, certain)
        return follower

    # -- shipping ---------------------------------------------------------------------------------

    def ship(self, now_ms: int, bounds: Bounds, *, flush: bool) -> list[Shipment]:
        """What may leave now: chunks as far as there is room, and heartbeats that are due."""
        if self.fenced or bounds.flushed < self.opened_end:
            return []
        self._extend(bounds)
        shipments: list[Shipment] = []
        for follower in self._followers.values():
            shipments += self._ship_to(follower, now_ms, bounds, flush)
        return shipments

    def _extend(self, bounds: Bounds) -> None:
        if bounds.end > self.epochs.end:
            self.epochs.extend(bounds.end)

    def _ship_to(
        self, follower: Follower, now_ms: int, bounds: Bounds, flush: bool
    ) -> list[Shipment]:
        progress = follower.progress
        shipments: list[Shipment] = []
        for _ in range(_CHUNKS_PER_TURN):
            if progress.next >= bounds.end or not progress.room(CHUNK_WINDOW_BYTES_MAX):
                break
            run = self.epochs.run_from(progress.next)
            chunk = self._source.read_chunk(progress.next, run.end, CHUNK_BYTES_MAX)
            if chunk.end == progress.next:
                break
            shipments.append(self._shipment(follower, bounds, chunk, run.epoch, flush))
        quiet_ms = now_ms - follower.sent_ms
        # Readers of the follower are as far behind as what it knows to be confirmed.
        news = follower.told_confirmed < bounds.confirmed and progress.state is State.REPLICATE
        if not shipments and (quiet_ms >= HEARTBEAT_MS or news):
            if now_ms - progress.heard_ms >= SILENT_MS:
                progress.silent()
            shipments.append(self._shipment(follower, bounds, None, 0, flush))
        if shipments:
            follower.sent_ms = now_ms
        return shipments

    def _shipment(
        self, follower: Follower, bounds: Bounds, chunk: Chunk | None, epoch: int, flush: bool
    ) -> Shipment:
        position = follower.progress.next
        previous = self.epochs.epoch_at(position)
        self._round += 1
        end = position if chunk is None else chunk.end
        header = LogChunk(
            group=self._broker_name,
            epoch=self.epoch,
            leader=self.leader,
            position=position,
            end=end,
            previous_epoch=previous,
            data_epoch=previous if chunk is None else epoch,
            confirmed=bounds.confirmed,
            leader_end=bounds.end,
            first_position=bounds.first,
            round=self._round,
            flush=flush,
            damage="" if chunk is None else chunk.damage[:DAMAGE_LENGTH_MAX],
        )
        follower.progress.ships(end, self._round)
        follower.told_confirmed = bounds.confirmed
        return Shipment(follower.to, header, _NOTHING if chunk is None else chunk.data)


_NOTHING = memoryview(b"")
