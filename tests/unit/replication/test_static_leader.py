"""A static leader ships its log: pure, against followers of the real rules."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from kourou.model.limits import CHUNK_BYTES_MAX, CHUNK_WINDOW_BYTES_MAX, FOLLOWERS_MAX
from kourou.protocol.messages.replication import Attach, ChunkAck
from kourou.replication.epochs import Epochs
from kourou.replication.progress import ReplicationState
from kourou.replication.static_follower import (
    AppendBytes,
    Copying,
    FollowerIdentity,
    FollowerStep,
    SendToLeader,
    TruncateTo,
)
from kourou.replication.static_leader import HEARTBEAT_MS, SILENT_MS, Bounds, Shipping

EPOCH = 64


@dataclass(frozen=True)
class Piece:
    data: memoryview
    end: int
    damage: str = ""


class Log:
    """Records of 100 bytes; chunks end at their borders and at segments of 10,000."""

    def __init__(self, size: int = 0) -> None:
        self.data = bytearray((b"0123456789" * 10 + b"x" * 100) * (size // 200 + 1))[:size]
        self.damaged: dict[int, int] = {}

    def read_chunk(self, position: int, limit: int, max_bytes: int) -> Piece:
        if position in self.damaged:
            end = self.damaged[position]
            return Piece(memoryview(self.data)[position:end], end, "rotten")
        segment_end = position - position % 10_000_000 + 10_000_000
        end = min(limit, segment_end, position + max_bytes - max_bytes % 100, len(self.data))
        return Piece(memoryview(bytes(self.data[position:end])), end)


def bounds(log: Log, *, first: int = 0, flushed: int | None = None, confirmed: int = 0) -> Bounds:
    end = len(log.data)
    return Bounds(first, end, end if flushed is None else flushed, confirmed)


def shipping(log: Log) -> Shipping:
    found = Shipping("c", "broker-a", log, Epochs([(EPOCH, 0)], len(log.data)))
    found.leader = "broker-a/0"
    return found


def ask(end: int = 0, epochs: tuple[tuple[int, int], ...] = (), **fields: object) -> Attach:
    wanted = {"cluster": "c", "broker_name": "broker-a", "broker_id": 1, **fields}
    return Attach(epochs=epochs, end=end, **wanted)


def ack(leader: Shipping, *, written: int, round_: int = 1) -> ChunkAck:
    return ChunkAck(
        group="broker-a", epoch=leader.epoch, member="1", accepted=True, written=written,
        flushed=written, round=round_,
    )  # fmt: skip


class Pair:
    """A leader, and a follower that keeps what it takes."""

    def __init__(self, log: Log, follower: Copying | None = None) -> None:
        self.log, self.leader = log, shipping(log)
        self.follower = follower or Copying(FollowerIdentity("c", "broker-a", 1), Epochs(), 0)
        self.copy = bytearray()
        self.now_ms = 0
        self.chunks = 0

    def attach(self) -> list[TruncateTo]:
        said = self.follower.connected(self.now_ms).message
        assert isinstance(said, Attach)
        assert not self.leader.refusal(said)
        answer = self.leader.attach(self.now_ms, "f", said, bounds(self.log))
        return self.follower.attached(self.now_ms, answer)

    def turn(self, **more: int) -> bool:
        """One exchange; False when nothing was said."""
        shipped = self.leader.ship(self.now_ms, bounds(self.log, **more), flush=False)
        for shipment in shipped:
            self.chunks += bool(len(shipment.data))
            for step in self.follower.chunk(self.now_ms, shipment.chunk, shipment.data):
                self.does(step)
        for said in self.follower.acknowledge():
            self.does(said)
        return bool(shipped)

    def does(self, step: AppendBytes | SendToLeader) -> None:
        if isinstance(step, AppendBytes):
            assert step.position == len(self.copy)
            self.copy += step.data
            self.follower.copied(step.end)
        else:
            assert isinstance(step.message, ChunkAck)
            self.leader.answered(self.now_ms, "f", step.message)

    def settle(self) -> None:
        while self.turn():
            pass


@pytest.mark.feature("F131", "F132", "F275")
def test_a_follower_gets_the_whole_log_in_chunks_of_a_megabyte_without_a_timer() -> None:
    pair = Pair(Log(20_000_000))
    assert pair.attach() == []
    pair.settle()
    assert pair.copy == pair.log.data
    assert pair.follower.written == 20_000_000
    assert pair.chunks == pytest.approx(20, abs=2)
    assert pair.now_ms == 0, "nothing waited for time to pass"
    assert pair.leader.follower("f").progress.flushed == 0, "it has not said so yet"


def test_a_chunk_is_small_and_of_one_segment_and_what_is_in_flight_is_bounded() -> None:
    log = Log(30_000_000)
    leader = shipping(log)
    leader.attach(0, "f", ask(), bounds(log))
    (first,) = leader.ship(0, bounds(log), flush=False)
    leader.answered(0, "f", ack(leader, written=first.chunk.end))
    sent = leader.ship(0, bounds(log), flush=True)
    assert all(0 < len(each.data) <= CHUNK_BYTES_MAX for each in sent)
    assert all(each.chunk.flush for each in sent)
    total = sum(len(each.data) for each in sent)
    assert CHUNK_WINDOW_BYTES_MAX <= total < CHUNK_WINDOW_BYTES_MAX + CHUNK_BYTES_MAX
    assert leader.ship(1, bounds(log), flush=False) == []
    leader.answered(2, "f", ack(leader, written=sent[0].chunk.end))
    assert len(leader.ship(2, bounds(log), flush=False)) == 1, "an answer makes room for the next"


def test_a_chunk_is_of_one_epoch() -> None:
    log = Log(1_000)
    leader = shipping(log)
    leader.epochs.open(128, 1_000)
    log.data += bytes(500)
    leader.attach(0, "f", ask(), bounds(log))
    (first,) = leader.ship(0, bounds(log), flush=False)
    leader.answered(0, "f", ack(leader, written=1_000))
    (second,) = leader.ship(0, bounds(log), flush=False)
    one, two = first.chunk, second.chunk
    assert (one.position, one.end, one.previous_epoch, one.data_epoch) == (0, 1_000, 0, EPOCH)
    assert (two.position, two.end, two.previous_epoch, two.data_epoch) == (1_000, 1_500, EPOCH, 128)
    assert one.epoch == two.epoch == 128


def test_nothing_leaves_before_the_epoch_is_on_the_leaders_disk() -> None:
    log = Log(1_000)
    leader = shipping(log)
    leader.opened_end = 600
    leader.attach(0, "f", ask(), bounds(log))
    assert leader.ship(0, bounds(log, flushed=599), flush=False) == []
    assert leader.ship(0, bounds(log, flushed=600), flush=False)


def test_a_follower_at_rest_hears_where_the_leader_stands() -> None:
    pair = Pair(Log(300))
    pair.attach()
    pair.settle()
    assert not pair.turn()
    pair.now_ms = HEARTBEAT_MS
    assert pair.turn()
    assert not pair.turn()
    assert pair.turn(confirmed=200), "what may be read is told at once"
    assert pair.follower.confirmed == 200


def test_who_does_not_answer_is_asked_what_it_has() -> None:
    log = Log(300)
    leader = shipping(log)
    leader.attach(0, "f", ask(), bounds(log))
    leader.ship(0, bounds(log), flush=False)
    leader.answered(0, "f", ack(leader, written=300))
    follower = leader.follower("f")
    assert follower is not None
    assert follower.progress.state is ReplicationState.REPLICATE
    leader.ship(SILENT_MS, bounds(log), flush=False)
    assert follower.progress.state is ReplicationState.PROBE


@pytest.mark.feature("F132")
def test_who_may_not_follow_is_reported_why() -> None:
    leader = shipping(Log(100))
    assert "this is c/broker-a, and not x/broker-a" in leader.refusal(ask(cluster="x"))
    assert "not c/b" in leader.refusal(ask(broker_name="b"))
    assert "not the brokerId of a follower" in leader.refusal(ask(broker_id=0))
    for number in range(1, FOLLOWERS_MAX + 1):
        assert not leader.refusal(ask(broker_id=number))
        leader.attach(0, number, ask(broker_id=number), bounds(Log(100)))
    assert "already, the maximum" in leader.refusal(ask(broker_id=99))
    assert not leader.refusal(ask(broker_id=3))
    leader.attach(0, "again", ask(broker_id=3), bounds(Log(100)))
    assert leader.follower(3) is None
    assert len(leader.followers) == FOLLOWERS_MAX


def test_a_log_that_begins_later_or_is_foreign_is_not_shipped() -> None:
    log = Log(1_000)
    leader = shipping(log)
    answer = leader.attach(0, "f", ask(end=100, epochs=((EPOCH, 0),)), bounds(log, first=500))
    assert (answer.refusal, answer.common, answer.begin_at) == ("", 100, 500)
    answer = leader.attach(0, "f", ask(end=900, epochs=((7, 800),)), bounds(log))
    assert "none of its epochs" in answer.refusal
    assert not leader


def test_a_leader_that_hears_of_a_higher_epoch_sends_nothing_more() -> None:
    log = Log(1_000)
    leader = shipping(log)
    leader.attach(0, "f", ask(), bounds(log))
    assert "epoch 64 has ended: epoch 65" in leader.refusal(ask(end=9, epochs=((65, 0),)))
    assert leader.fenced == 65
    assert leader.ship(0, bounds(log), flush=False) == []
    assert "has ended" in leader.refusal(ask())
    other = shipping(log)
    newer = ChunkAck(group="broker-a", epoch=99, member="1", accepted=False)
    assert other.answered(0, "f", newer) is None
    assert other.fenced == 99


def test_answers_of_strangers_and_of_another_epoch_count_for_nothing() -> None:
    log = Log(1_000)
    leader = shipping(log)
    assert leader.answered(0, "nobody", ack(leader, written=1_000)) is None
    leader.attach(0, "f", ask(), bounds(log))
    old = ChunkAck(group="broker-a", epoch=1, member="1", accepted=True, written=1_000)
    assert leader.answered(0, "f", old) is None
    other = ChunkAck(group="b", epoch=EPOCH, member="1", accepted=True, written=1_000)
    assert leader.answered(0, "f", other) is None
    follower = leader.answered(0, "f", ack(leader, written=1_000))
    assert follower is not None
    assert follower.progress.written == 0, "nothing was sent yet: so much cannot be there"


@pytest.mark.feature("F130")
def test_a_follower_cuts_what_its_leader_lost_and_goes_on_from_there() -> None:
    """The leader lost 300..400 with its power, began a new epoch and wrote something else."""
    log = Log(300)
    follower = Copying(FollowerIdentity("c", "broker-a", 1), Epochs([(EPOCH, 0)], 400), 0)
    pair = Pair(log, follower)
    pair.copy += bytes(400)
    pair.leader.epochs.open(128, 300)
    log.data += b"x" * 200
    assert pair.attach() == [TruncateTo(300)]
    assert follower.step is FollowerStep.DETACHED
    pair.follower = Copying(FollowerIdentity("c", "broker-a", 1), Epochs([(EPOCH, 0)], 300), 0)
    pair.copy = log.data[:300]
    assert pair.attach() == []
    pair.settle()
    assert pair.copy == log.data


def test_a_damaged_region_travels_as_what_it_is() -> None:
    log = Log(1_000)
    log.damaged[0] = 300
    pair = Pair(log)
    pair.attach()
    (damaged,) = pair.leader.ship(0, bounds(log), flush=False)
    pair.leader.answered(0, "f", ack(pair.leader, written=300))
    (good,) = pair.leader.ship(0, bounds(log), flush=False)
    assert (damaged.chunk.damage, damaged.chunk.end, good.chunk.damage) == ("rotten", 300, "")
    (take,) = pair.follower.chunk(0, damaged.chunk, damaged.data)
    assert isinstance(take, AppendBytes)
    assert take.damage == "rotten"
