"""Pieces of the log for members that are far behind, and for backups."""

from __future__ import annotations

import pytest

from kourou.engine.roles.quorum import QuorumFollowerRole, QuorumLeaderRole
from kourou.errors import Code
from kourou.model.limits import FETCH_BYTES_MAX
from kourou.protocol.messages.replication import FetchLog, FetchLogResponse
from kourou.replication.epochs import Epochs
from kourou.runtime import Reply
from kourou_rigs.engine import Engine, MemoryChunk, MemoryStore
from kourou_rigs.pair import Pair
from kourou_rigs.quorum import GivenQuorum


def fetch(position: int, *, group: str = "broker-a", size: int = 1 << 20, damaged: bool = False):
    return FetchLog(group=group, position=position, max_bytes=size, damaged=damaged)


def got(reply: Reply) -> tuple[FetchLogResponse, bytes]:
    assert reply.code == Code.SUCCESS, reply.remark
    return reply.header, b"".join(reply.body)


def copy(engine: Engine) -> bytes:
    """The whole log, as a backup reads it."""
    found, position = b"", 0
    while True:
        header, body = got(engine.ask(fetch(position)))
        assert header.position == position
        if header.end == position:
            return found
        found += body.ljust(header.end - position, b"\0")
        position = header.end


def log(store: MemoryStore, end: int) -> bytes:
    found = b""
    for position in sorted(store.records):
        if position < end:
            found = found.ljust(position, b"\0") + store.records[position]
    return found


def test_every_broker_gives_its_log_out_whoever_follows_it(draft, records) -> None:
    engine = Engine(segment_size=4_096)
    for _ in range(4):
        engine.send(*records([draft(body=bytes(900))]))
    assert len(copy(engine)) == engine.store.end
    header, _ = got(engine.ask(fetch(engine.store.end)))
    assert (header.end, header.confirmed, header.data_epoch) == (
        engine.store.end, engine.store.end, 0,
    )  # fmt: skip


def test_only_what_is_confirmed_is_given_out(draft, records) -> None:
    engine = Engine(sync_flush=True)
    before = engine.store.end
    engine.send(*records([draft()]))
    assert copy(engine) == log(engine.store, before)
    header, body = got(engine.ask(fetch(before)))
    assert (header.confirmed, header.end, body) == (before, before, b"")
    engine.flush()
    assert copy(engine) == log(engine.store, engine.store.end)


def test_a_piece_is_of_one_epoch_and_says_which(draft, records) -> None:
    pair = Pair()
    pair.connect()
    pair.settle()
    (_, start), *_ = pair.leader.control.replicas.epochs
    for engine in (pair.leader, pair.follower):
        first, body = got(engine.ask(fetch(0)))
        assert (first.previous_epoch, first.data_epoch, first.end) == (0, 0, start)
        assert len(body) == start
        second, _ = got(engine.ask(fetch(start)))
        assert (second.previous_epoch, second.data_epoch) == (0, 64)
        last, _ = got(engine.ask(fetch(second.end)))
        assert (last.previous_epoch, last.data_epoch) == (64, 64)


def test_a_member_of_a_group_knows_the_epochs_of_what_it_has_not_read_yet(draft, records) -> None:
    """Its control state follows the queues, which follow the log."""
    store = Engine().store
    end = store.end
    quorum = GivenQuorum(member="n1", group="g1", epochs=Epochs([(5, 0)], end), confirmed=end)
    follower = Engine(role=QuorumFollowerRole(quorum), left=store)
    header, body = got(follower.ask(fetch(0, group="g1")))
    assert (header.data_epoch, header.previous_epoch, header.end) == (5, 0, end)
    assert body == log(store, end)
    assert got(follower.ask(fetch(0)))[0] == header, "a backup knows only the broker's name"
    quorum.epochs, quorum.leader = Epochs([(5, 0), (6, end)], end), "n1"
    leader = Engine(role=QuorumLeaderRole(6, quorum), left=store)
    assert got(leader.ask(fetch(end)))[0].end == end, "the opening record waits for a majority"


def test_a_static_follower_knows_what_it_took_too() -> None:
    pair = Pair()
    pair.connect()
    pair.settle()
    copying, end = pair.follower.core.role.copying, pair.follower.store.end
    copying._epochs = Epochs([(5, 0)], end)  # as taken, though nothing of it was read yet
    assert got(pair.follower.ask(fetch(0)))[0].data_epoch == 5


def test_another_group_gets_nothing() -> None:
    reply = Engine().ask(fetch(0, group="broker-b"))
    assert (reply.code, reply.remark) == (
        Code.NO_PERMISSION, "this is broker-a, not broker-b",
    )  # fmt: skip


class Damaged(MemoryStore):
    """A log whose first 100 bytes cannot be read."""

    def log_range(self) -> tuple[int, int]:
        return 50, self.end

    def read_chunk(self, position: int, limit: int, max_bytes: int) -> MemoryChunk:
        assert max_bytes <= FETCH_BYTES_MAX
        return MemoryChunk(position, memoryview(bytes(100)), position + 100, "bad checksum " * 50)


def test_damaged_bytes_are_given_only_to_whoever_wants_them_too() -> None:
    engine = Engine(left=Damaged())
    reply = engine.ask(fetch(50))
    assert reply.code == Code.MESSAGE_CORRUPT
    assert "damaged from 50 to 150" in reply.remark
    header, body = got(engine.ask(fetch(50, size=1 << 40, damaged=True)))
    assert (header.end, body, header.damage[:12], len(header.damage)) == (
        150, bytes(100), "bad checksum", 256,
    )  # fmt: skip


def test_who_asks_for_what_is_gone_is_reported_where_the_log_begins() -> None:
    header, body = got(Engine(left=Damaged()).ask(fetch(20)))
    assert (header.position, header.end, header.first_position, body) == (50, 50, 50, b"")


@pytest.mark.parametrize("position", [1, 7])
def test_what_is_no_boundary_is_refused(position) -> None:
    class Strict(MemoryStore):
        def read_chunk(self, position: int, limit: int, max_bytes: int) -> MemoryChunk:
            self.record_at(position)
            return super().read_chunk(position, limit, max_bytes)

    assert Engine(left=Strict()).ask(fetch(position)).code == Code.SYSTEM_ERROR
