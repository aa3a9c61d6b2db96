"""The inputs of the Raft core, their order, and how its effects are executed."""

from __future__ import annotations

import asyncio
import logging
from types import SimpleNamespace
from typing import Any

import pytest

from kourou.broker.raft.raft_group import WARN_MS, GroupCallbacks, RaftGroup, VoterStatusLog
from kourou.engine import inputs as engine
from kourou.errors import Rejected
from kourou.protocol.messages.replication import LogChunk
from kourou.replication.epochs import TruncateLog
from kourou.replication.raft import inputs as raft_inputs
from kourou.replication.raft.effects import RoleChanged, Send
from kourou.replication.raft.node import RaftSettings
from kourou.store.replica.replica_files import StoredVote
from kourou_rigs.clock import ManualClock

SETTINGS = RaftSettings("g", "n0", ("n0", "n1", "n2"))


class Log:
    """As much of a store as a member needs."""

    def __init__(self) -> None:
        self.end = self.flushed = 0
        self.refuses = False
        self.damaged_regions: list[Any] = []

    def log_range(self) -> tuple[int, int]:
        return 0, self.end

    def append_chunk(self, position: int, data: bytes) -> int:
        if self.refuses or position != self.end:
            raise Rejected("no")
        self.end += len(data)
        return self.end


class Bench:
    """A group of which this test is the engine, the disk and the other members."""

    def __init__(self, *, ready: bool = True) -> None:
        self.clock = ManualClock()
        self.said: list[tuple[str, Any]] = []
        self.roles: list[RoleChanged] = []
        self.posted: list[Any] = []
        self.cuts: list[TruncateLog] = []
        self.flushes = self.copies = 0
        self.failures: list[BaseException] = []
        self.log = Log()
        links = SimpleNamespace(
            open=lambda: None, close=lambda: None, fetch=None,
            send=lambda member, message, body=b"": self.said.append((member, message)),
        )  # fmt: skip
        callbacks = GroupCallbacks(
            role=self.roles.append, cut=self.cuts.append, begin=lambda effect: None,
            post=self.posted.append, failed=self.failures.append,
        )  # fmt: skip
        chance = SimpleNamespace(randint=lambda low, high: low)
        self.group = RaftGroup(SETTINGS, self.clock, links, chance, callbacks)  # type: ignore[arg-type]
        executor = SimpleNamespace(copied=self._copied)
        self.store_runtime: Any = SimpleNamespace(
            store=self.log, flush=self._flush, executor=executor
        )
        vote = SimpleNamespace(read=lambda: StoredVote(0, "", lived=False), save=lambda vote: None)
        if ready:
            self.group.prepare(self.store_runtime, [], vote, "n0:1")  # type: ignore[arg-type]
            self.group.open()

    def _flush(self) -> None:
        self.flushes += 1

    def _copied(self) -> None:
        self.copies += 1

    def chunk(self, data: bytes, position: int = 0, confirmed: int = 0) -> None:
        end = position + len(data)
        message = LogChunk(
            group="g", epoch=1, leader="n1", position=position, end=end,
            previous_epoch=1 if position else 0, data_epoch=1, confirmed=confirmed, leader_end=end,
            first_position=0, round=1, flush=True, catch_up=False, address="n1:1",
        )  # fmt: skip
        self.group.received([raft_inputs.MessageReceived(message, data)])


async def turn() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


async def test_a_leaders_bytes_are_written_reported_and_flushed() -> None:
    bench = Bench()
    bench.chunk(b"12345678")
    assert bench.log.end == 8
    assert engine.Copied(8) in bench.posted
    assert (bench.copies, bench.flushes) == (1, 1)
    assert (bench.group.leader, bench.group.leader_end) == ("n1", 8)
    assert bench.group.leader_address == "n1:1"
    bench.group.flushed(8)
    bench.chunk(b"", position=8, confirmed=8)
    await turn()
    assert engine.Confirmed(8) in bench.posted
    assert bench.group.confirmed == 8
    assert bench.roles[-1].leader == "n1"


async def test_bytes_that_were_not_written_are_asked_for_again() -> None:
    bench = Bench()
    bench.log.refuses = True
    bench.chunk(b"12345678")
    assert bench.posted == []
    assert bench.group.epochs.end == 0
    bench.log.refuses = False
    bench.clock.advance(SETTINGS.heartbeat_ms)
    bench.chunk(b"12345678")
    assert bench.group.epochs.end == bench.log.end == 8


async def test_appends_of_the_broker_core_are_handled_before_a_later_message(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = Bench()
    handled: list[raft_inputs.Input] = []
    monkeypatch.setattr(
        bench.group._member, "handle", lambda now_ms, inputs: handled.extend(inputs) or []
    )
    bench.group.appended(10)
    bench.group.appended(20)
    bench.group.transfer_leadership("n1")
    assert handled == [], "not within a turn of the engine"
    await turn()
    assert handled == [raft_inputs.Appended(0, 20), raft_inputs.TransferLeadership("n1")]
    assert bench.flushes == 1, "its own disk counts for the majority"


async def test_a_flush_that_a_truncation_has_overtaken_is_not_reported() -> None:
    bench = Bench()
    bench.chunk(b"12345678")
    bench.group.detach()
    bench.group.flushed(8)
    await turn()
    assert bench.group._member.log.flushed == 0


async def test_a_log_that_was_not_truncated_as_requested_is_refused() -> None:
    bench = Bench()
    bench.chunk(b"12345678")
    recovered = SimpleNamespace(control=SimpleNamespace(replicas=SimpleNamespace(epochs=[])))
    bench.store_runtime.opened = SimpleNamespace(recovered=recovered)
    bench.group.detach()
    with pytest.raises(Exception, match="should have been truncated to"):
        bench.group.attach(bench.store_runtime, raft_inputs.LogTruncated())


async def test_an_error_of_the_member_ends_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()

    def broken(now_ms: int, inputs: object) -> list[Send]:
        raise AssertionError("a bug")

    monkeypatch.setattr(bench.group._member, "handle", broken)
    bench.group.vote_saved()
    await turn()
    assert [str(one) for one in bench.failures] == ["a bug"]
    assert not bench.group.may_acknowledge()


async def test_a_stopped_replica_sends_nothing_more() -> None:
    bench = Bench()
    bench.group._vote = None
    await bench.group.stop()
    said = len(bench.said)
    bench.chunk(b"12345678")
    bench.clock.advance(SETTINGS.election_timeout_ms_max)
    bench.group._woken()
    assert (len(bench.said), bench.log.end) == (said, 0)


async def test_what_comes_while_the_store_is_recovered_is_lost() -> None:
    """Others talk on; what they said an hour ago is of no use, and nobody counts its bytes."""
    bench = Bench(ready=False)
    for _ in range(3):
        bench.chunk(b"12345678")
    assert not bench.group._inbox
    assert bench.failures == []


# -- what a replica says in its log of the members it waits for before it may vote -----------------


def test_who_waits_for_a_vote_says_for_whom(caplog: pytest.LogCaptureFixture) -> None:
    lines = VoterStatusLog(0)
    member: Any = SimpleNamespace(leader="", joining=SimpleNamespace(awaited=lambda: ["n1", "n2"]))
    caplog.set_level(logging.INFO)
    lines.look(member, WARN_MS - 1)
    assert not caplog.messages
    for now_ms in (WARN_MS, WARN_MS + 1):
        lines.look(member, now_ms)
    assert len(caplog.messages) == 1
    assert caplog.messages[0].endswith("n1, n2")
    lines.written(joining=True)
    lines.written(joining=False)
    assert caplog.messages[-1] == "vote-allowed: this replica may vote now"
