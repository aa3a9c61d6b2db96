"""The leader's side of static replication: attached followers, and what each of them is sent.

State: soft. After a restart of the leader, its followers attach again.

A chunk is at most CHUNK_BYTES_MAX of log bytes of one epoch and one segment, split at records. An
acknowledgement makes room for the next chunk, so sending never waits for a timer. An epoch's bytes
are sent only after the record that opened it is on the leader's own disk (`opened_end`): data that
a power loss takes from the leader then always belongs to an epoch that is followed by another one,
and so a follower finds out which of its bytes the leader no longer has.

Invariants:  nothing is sent before its epoch is flushed here
             one connection follows for one brokerId; a newer one replaces it
             once a higher epoch is known, nothing is sent any more (`fenced`)
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
from kourou.replication.progress import FollowerProgress, ReplicationState

HEARTBEAT_MS = 1_000
"""The leader sends its positions to an idle follower this often."""
SILENT_MS = 5_000
"""A follower that does not answer for this long is probed again."""
_CHUNKS_PER_TURN = 16
"""A follower that catches up must not keep all others waiting."""


class ChunkRead(Protocol):
    """Log bytes: `end` is after the filler, if one closes the segment; see kourou.store."""

    @property
    def data(self) -> memoryview:
        """The bytes."""
        ...

    @property
    def end(self) -> int:
        """The position where the log continues."""
        ...

    @property
    def damage(self) -> str:
        """Why these are not readable records; "" for good ones."""
        ...


class ChunkSource(Protocol):
    """The log that is replicated."""

    def read_chunk(self, position: int, limit: int, max_bytes: int) -> ChunkRead:
        """Whole records from `position` on; empty if nothing is written there yet."""
        ...


@dataclass(frozen=True, slots=True)
class Shipment:
    """One message to one follower; `to` identifies its connection."""

    to: Hashable
    chunk: LogChunk
    data: memoryview


@dataclass(frozen=True, slots=True)
class Bounds:
    """The start of the leader's log, its written end, its flushed end, and its committed end."""

    first: int
    end: int
    flushed: int
    confirmed: int


@dataclass(slots=True)
class AttachedFollower:
    """An attached follower. Times are monotonic ms; `committed_sent`: the last one sent to it."""

    to: Hashable
    broker_id: int
    progress: FollowerProgress
    sent_ms: int
    committed_sent: int = -1


class Shipping:
    """Replicates one log in one epoch. `opened_end`: the end of the record that opened it."""

    def __init__(self, cluster: str, broker_name: str, source: ChunkSource, epochs: Epochs) -> None:
        self._cluster = cluster
        self._broker_name = broker_name
        self._source = source
        self.epochs = epochs
        self.opened_end = 0
        self.leader = ""
        self.fenced = 0
        self._round = 0
        self._followers: dict[Hashable, AttachedFollower] = {}

    @property
    def epoch(self) -> int:
        """The leader's own epoch."""
        return self.epochs.newest

    @property
    def followers(self) -> Sequence[AttachedFollower]:
        """All attached followers."""
        return list(self._followers.values())

    def __bool__(self) -> bool:
        return bool(self._followers)

    def follower(self, to: Hashable) -> AttachedFollower | None:
        """The follower of this connection."""
        return self._followers.get(to)

    # -- followers --------------------------------------------------------------------------------

    def refusal(self, attach: Attach) -> str:
        """Why an attach request is refused, regardless of its bytes; "" if it is accepted."""
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
        """Attach a follower that `refusal` accepted, from the position where both logs diverge."""
        self._extend(bounds)
        common = self.epochs.common(attach.epochs, attach.end)
        refusal, begin_at = "", 0
        if not self.epochs.is_certain(attach.epochs):
            refusal = "none of its epochs is one of this leader's"
        elif common < bounds.first:
            begin_at = bounds.first  # no replica has the data that it lacks any more
        if not refusal and not begin_at:
            for former in [one for one in self.followers if one.broker_id == attach.broker_id]:
                del self._followers[former.to]
            progress = FollowerProgress(str(attach.broker_id), common, now_ms)
            self._followers[to] = AttachedFollower(
                to, attach.broker_id, progress, now_ms - HEARTBEAT_MS
            )
        return Attached(
            broker_name=self._broker_name,
            broker_id=attach.broker_id,
            epoch=self.epoch,
            common=common,
            refusal=refusal,
            begin_at=begin_at,
        )

    def detach(self, to: Hashable) -> AttachedFollower | None:
        """The connection is closed; returns its follower."""
        return self._followers.pop(to, None)

    # -- acknowledgements -------------------------------------------------------------------------

    def answered(self, now_ms: int, to: Hashable, ack: ChunkAck) -> AttachedFollower | None:
        """Handle an acknowledgement; None if it is of an unknown connection or of another epoch."""
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

    # -- sending ----------------------------------------------------------------------------------

    def ship(self, now_ms: int, bounds: Bounds, *, flush: bool) -> list[Shipment]:
        """What can be sent now: chunks as far as there is room, and heartbeats that are due."""
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
        self, follower: AttachedFollower, now_ms: int, bounds: Bounds, flush: bool
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
        # The follower's readers lag behind until it knows the new committed position.
        news = (
            follower.committed_sent < bounds.confirmed
            and progress.state is ReplicationState.REPLICATE
        )
        if not shipments and (quiet_ms >= HEARTBEAT_MS or news):
            if now_ms - progress.heard_ms >= SILENT_MS:
                progress.silent()
            shipments.append(self._shipment(follower, bounds, None, 0, flush))
        if shipments:
            follower.sent_ms = now_ms
        return shipments

    def _shipment(
        self,
        follower: AttachedFollower,
        bounds: Bounds,
        chunk: ChunkRead | None,
        epoch: int,
        flush: bool,
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
        follower.committed_sent = bounds.confirmed
        return Shipment(follower.to, header, _NOTHING if chunk is None else chunk.data)


_NOTHING = memoryview(b"")
