"""A leader and its follower, through every way in which one of them, or the wire, may fail.

Each seed is a life of a static pair with the real cores on both sides: messages are sent, bytes
travel in pieces, disks flush or not, connections end, either side is killed or loses its power.
After every step the two logs are compared, and at the end all is well again: then the follower must
have everything, and the leader must count it.

Two lives of three are of a SYNC_MASTER, where a sender that was told SEND_OK must find its message
at the follower whatever becomes of the leader.
"""

from __future__ import annotations

import random
import struct
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache

import pytest

from kourou.engine.roles.follower import StaticFollower
from kourou.engine.roles.leader import LeaderRole, StaticLeader
from kourou.engine.roles.replicas import ReplicaAggregate
from kourou.engine.sends.confirmations import CopiedConfirmations
from kourou.errors import Code
from kourou.protocol.messages.sends import SendRecords, Target
from kourou.protocol.record.message_record import decode_record, encode_draft
from kourou.protocol.record.properties import encode_properties
from kourou.replication.epochs import Epochs
from kourou.replication.static_follower import Copying, FollowerStep
from kourou.replication.static_leader import Shipping
from kourou_rigs.engine import Engine, MemoryStore
from kourou_rigs.pair import Pair

SEGMENT = 16 * 1024


class Violation(AssertionError):
    """The pair broke a promise."""


class Life:
    """One pair; `promised` are the keys of senders that were told SEND_OK by a SYNC_MASTER."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        sync = seed % 3 > 0
        self.pair = Pair(sync=sync, ack_on_flush=sync, segment_size=SEGMENT)
        self.asked: dict[tuple[int, int], list[str]] = {}
        self.promised: set[str] = set()
        self.events: Counter[str] = Counter()
        self.keys = 0
        self.stuck = False

    def live(self) -> None:
        steps: list[tuple[float, Callable[[], None]]] = [
            (8, self.send),
            (14, lambda: self.arrive(self.rng.randrange(1, 8))),
            (self.rng.choice([0.5, 3]), self.pair.flush_leader),
            (4, self.pair.flush_follower),
            (8, self.exchange),
            (3, lambda: self.pair.advance(self.rng.choice([10, 100, 1_000, 4_000]))),
            (3, self.connect),
            (0.5, self.disconnect),
            (0.5, lambda: self.crash(self.pair.crash_follower, "follower")),
            (0.5, lambda: self.crash(self.pair.crash_leader, "leader")),
        ]
        weights = [weight for weight, _ in steps]
        for _ in range(self.rng.randrange(20, 90)):
            self.rng.choices([step for _, step in steps], weights)[0]()
            self.check()
            if self.stuck:
                return
        self.heal()

    # -- what happens -----------------------------------------------------------------------------

    def send(self) -> None:
        count = self.rng.randrange(1, 4)
        keys = [f"k{self.keys + n}" for n in range(count)]
        self.keys += count
        target = Target(f"topic{self.rng.randrange(3)}", self.rng.randrange(2))
        drafts = [draft(target, key, self.rng.randrange(1, 1_500)) for key in keys]
        request = SendRecords(
            targets=[target],
            target_of=b"",
            sizes=struct.pack(f"<{count}I", *map(len, drafts)),
            producer_group="p",
            default_topic="TBW102",
            default_topic_queue_nums=4,
        )
        self.asked[self.pair.leader.send(request, b"".join(drafts))] = keys
        self.pair.take()
        self.answers()

    def arrive(self, count: int) -> None:
        self.events["messages"] += self.pair.deliver(count)

    def exchange(self) -> None:
        """All is quick for a moment."""
        self.arrive(1_000)
        self.pair.flush_follower()
        self.arrive(1_000)

    def connect(self) -> None:
        if not self.pair.connected:
            self.pair.connect()

    def disconnect(self) -> None:
        self.pair.disconnect()
        self.events["disconnected"] += 1

    def crash(self, crash: Callable[..., None], who: str) -> None:
        self.answers()
        power = self.rng.random() < 0.6
        crash(power=power)
        self.events[f"{who} {'lost power' if power else 'killed'}"] += 1
        if who == "leader":
            self.asked.clear()  # whoever waited does not know
            if self.rng.random() < 0.5:
                self.send()

    def answers(self) -> None:
        for name, keys in list(self.asked.items()):
            reply = self.pair.leader.replies.get(name)
            if reply is None:
                continue
            del self.asked[name]
            role = "sync" if self.pair.sync else "async"
            self.events[f"{role}: {Code(reply.code).name}"] += 1
            if reply.code == Code.SUCCESS and self.pair.sync:
                self.promised.update(keys)

    # -- the oracle -------------------------------------------------------------------------------

    def check(self) -> None:
        self.answers()
        pair = self.pair
        ours, theirs = history(pair.leader), history(pair.follower)
        for position, record in pair.follower.store.records.items():
            other = pair.leader.store.records.get(position)
            at = position + 1
            if ours.epoch_at(at) != theirs.epoch_at(at) or at > ours.end:
                continue
            if other != record:
                raise Violation(f"both have epoch {ours.epoch_at(at)} at {at}, and differ there")
        step = copying(pair).step
        if step is FollowerStep.FOLLOWING and copying(pair).taken > pair.leader.store.end:
            raise Violation("a follower has more than its leader")
        confirmed = pair.follower.core.parts.confirmations.confirmed
        if confirmed > pair.follower.store.end:
            raise Violation("what is not there is confirmed")
        if pair.follower.control.replicas != ReplicaAggregate() and not theirs.opened():
            raise Violation("an epoch has no place")
        missing = self.promised - keys_of(pair.follower.store)
        if missing:
            raise Violation(f"{sorted(missing)} were acknowledged and are gone")
        if step is FollowerStep.REFUSED:
            assert "promised" in copying(pair).reason, copying(pair).reason
            self.events["the leader lost what counted"] += 1
            self.stuck = True

    def heal(self) -> None:
        """From here on nothing fails, and everything must progress."""
        pair = self.pair
        for _ in range(60):
            if not pair.connected:
                pair.connect()
            pair.deliver()
            pair.flush()
            pair.deliver()
            pair.advance(500)
            self.check()
            if self.stuck:
                return
            if self.is_well():
                break
        leader, follower = pair.leader, pair.follower
        assert self.is_well(), (leader.store.end, follower.store.end, copying(pair).step)
        assert follower.store.records == leader.store.records
        assert follower.store.queues == leader.store.queues
        assert follower.control == leader.control
        self.events["healed"] += 1

    def is_well(self) -> bool:
        """Has the follower everything, do both know it, and is nobody left waiting?"""
        leader, follower = self.pair.leader, self.pair.follower
        leading, end = leader.core.role, leader.store.end
        assert isinstance(leading, StaticLeader)
        confirmed = {
            follower.core.parts.confirmations.confirmed,
            leader.core.parts.confirmations.confirmed,
        }
        counted = leading.in_sync == ((1,) if self.pair.sync else ())
        return counted and not self.asked and confirmed == {end} == {follower.store.end}


def draft(target: Target, key: str, size: int) -> bytes:
    return encode_draft(
        topic=target.topic.encode(),
        queue_id=target.queue_id,
        body=b"x" * size,
        properties=encode_properties({"UNIQ_KEY": key}),
        born_timestamp=1,
        born_host=bytes(8),
    )


def history(engine: Engine) -> Epochs:
    return Epochs(engine.control.replicas.epochs, engine.store.end)


def copying(pair: Pair) -> Copying:
    following = pair.follower.core.role
    assert isinstance(following, StaticFollower)
    return following.copying


def keys_of(store: MemoryStore) -> set[str]:
    return {key for key in map(key_of, store.records.values()) if key}


@lru_cache(maxsize=4_096)
def key_of(record: bytes) -> str:
    return decode_record(record).properties.get("UNIQ_KEY", "")


@pytest.mark.fault
@pytest.mark.feature("F129", "F130", "F131")
def test_a_pair_survives_whatever_happens(
    lived: Callable[[int, Callable[[int], Life]], tuple[int, Counter[str]]],
) -> None:
    _, events = lived(2_000, Life)
    assert events["healed"] > 0
    assert events["sync: SUCCESS"] > 0


# -- the oracle sees what it is there for ---------------------------------------------------------


def no_new_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StaticLeader, "start", lambda *_: None)


def ships_before_the_epoch_is_flushed(monkeypatch: pytest.MonkeyPatch) -> None:
    ship = Shipping.ship
    monkeypatch.setattr(
        Shipping,
        "ship",
        lambda self, now_ms, bounds, *, flush: ship(
            self, now_ms, replace(bounds, flushed=1 << 62), flush=flush
        ),
    )


def forgets_what_was_promised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ReplicaAggregate, "promised_to", lambda *_: 0)


def forgets_it_when_it_leaves_the_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        ReplicaAggregate, "promised_to", lambda self, member: (1 << 62) * (member in self.in_sync)
    )


def counts_what_is_only_written(monkeypatch: pytest.MonkeyPatch) -> None:
    init = LeaderRole.__init__
    monkeypatch.setattr(
        LeaderRole, "__init__", lambda self, chunks, sync, _flush: init(self, chunks, sync, False)
    )


def takes_whatever_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Epochs, "common", lambda self, _other, end: min(end, self.end))


def answers_without_the_follower(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CopiedConfirmations, "_safe", property(lambda self: self.appended))


@pytest.mark.fault
@pytest.mark.parametrize(
    "plant",
    [
        no_new_epoch,
        ships_before_the_epoch_is_flushed,
        forgets_what_was_promised,
        forgets_it_when_it_leaves_the_set,
        counts_what_is_only_written,
        takes_whatever_comes,
        answers_without_the_follower,
    ],
)
def test_a_planted_bug_is_found(
    plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    for seed in range(400):
        try:
            Life(seed).live()
        except AssertionError:
            return
    pytest.fail("nobody noticed")
