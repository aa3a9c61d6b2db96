"""What follows from facts about a message, rule by rule; no cluster is asked."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kourou.client.explain.causes import MEANINGS, Code, Severity
from kourou.client.explain.facts import (
    Copy,
    Delay,
    Facts,
    Form,
    GroupFacts,
    Half,
    HalfState,
    Kind,
    Lookup,
    Missing,
    Storage,
)
from kourou.client.explain.verdict import verdict
from kourou.client.explain.words import duration, when
from kourou.model.subscription import GroupConfig
from kourou.model.topic import MessageQueue

QUEUE = MessageQueue("orders", "broker-a", 1)


def codes(causes) -> list[Code]:
    return [one.code for one in causes]


@pytest.fixture
def facts(message) -> Facts:
    """A message that is stored, confirmed and readable, of a topic with one group."""
    storage = Storage(1_000, 1_100, True, True, (Copy(0, "h:1", True, "", True, True),))
    return Facts(
        "ID",
        2_000_000,
        Lookup(Form.KEY, ("broker-a",)),
        message,
        (message,),
        storage=storage,
        readable=True,
        read_queues=4,
        broker_readable=True,
        groups=(GroupFacts("g", GroupConfig("g"), online=True, next_offset=8),),
    )


def absent(**lookup) -> Facts:
    place = {"form": Form.PLACE, "place": (QUEUE, 7), "bounds": (3, 9)}
    return Facts("orders/broker-a/1@7", 0, Lookup(**{**place, **lookup}))


@pytest.mark.parametrize(
    ("lookup", "code", "known"),
    [
        ({"bounds": (8, 9)}, Code.EXPIRED, {"lowest_offset": 8}),
        ({"bounds": (7, 9)}, Code.NOT_CONFIRMED, {}),
        ({"bounds": (3, 7)}, Code.NEVER_STORED, {"queue_end": 7}),
        ({"queue_known": False}, Code.NEVER_STORED, {}),
        ({"queue_known": False, "bounds": None, "queues": 1}, Code.NOT_FOUND, {"queues": 1}),
        ({"queue_known": False, "bounds": None, "queues": 2}, Code.NEVER_STORED, {}),
        ({"bounds": (3, 7), "queues": 1}, Code.NEVER_STORED, {"queue_end": 7}),
        ({}, Code.NOT_CONFIRMED, {"queue_end": 9}),
        ({"behind": ("brokerId 1",)}, Code.NOT_CONFIRMED, {"behind": ("brokerId 1",)}),
        ({"damage": "its checksum"}, Code.BODY_DAMAGED, {"damage": "its checksum"}),
        ({"topic_known": False}, Code.NOT_FOUND, {"topic": "orders"}),
        ({"broker_known": False}, Code.BROKER_AWAY, {"brokers": ("broker-a",)}),
        ({"away": ("broker-a",)}, Code.BROKER_AWAY, {"brokers": ("broker-a",)}),
        ({"form": Form.OFFSET_ID, "host_known": False}, Code.BROKER_AWAY, {"host": ""}),
        ({"form": Form.KEY, "away": ("broker-b",)}, Code.BROKER_AWAY, {"brokers": ("broker-b",)}),
        ({"form": Form.KEY, "topic": "t"}, Code.NOT_FOUND, {"topic": "t"}),
        ({"form": Form.OFFSET_ID}, Code.NOT_FOUND, {"topic": None}),
    ],
)
def test_what_is_not_there(lookup, code, known):
    (cause,) = verdict(absent(**lookup)).causes
    assert cause.code is code
    assert known.items() <= dict(cause.facts).items()


def test_what_expired_says_how_long_messages_are_kept_if_that_is_known():
    def said(**more):
        return verdict(absent(bounds=(8, 9), **more)).causes[0].sentence

    assert "kept for 72 h" in said(reserved_hours=72)
    assert "kept" not in said()


def test_what_is_not_confirmed_says_whom_it_waits_for():
    def said(**more):
        return verdict(absent(**more)).causes[0].sentence

    both = said(behind=("brokerId 1",), flushed=False)
    assert "waits for brokerId 1 to copy it and the disk" in both
    assert "waits" not in said(flushed=True)
    assert "waits" not in said()


def test_what_is_stored_says_how_safely(facts):
    found = verdict(facts)
    assert codes(found.causes) == [Code.STORED]
    assert "flushed to disk; committed" in found.causes[0].sentence


def test_nobody_consumes_only_where_that_is_known(facts):
    alone = replace(facts, groups=())
    assert codes(verdict(alone).causes) == [Code.NOBODY_CONSUMES]
    unknown = replace(alone, groups_known=False, missing=(Missing("groups", "no answer"),))
    assert codes(verdict(unknown).causes) == [Code.STORED]


@pytest.mark.parametrize(
    ("state", "code"),
    [
        (HalfState.OPEN, Code.TRANSACTION_OPEN),
        (HalfState.ROLLED_BACK, Code.TRANSACTION_ROLLED_BACK),
        (HalfState.GIVEN_UP, Code.TRANSACTION_GIVEN_UP),
        (HalfState.UNKNOWN, Code.TRANSACTION_UNKNOWN),
        (HalfState.COMMITTED, Code.STORED),
    ],
)
def test_half_a_message_is_nobodys_whatever_else_holds(facts, message, state, code):
    half = Half(state, "shop", 2, replace(message, kind=Kind.HALF), producers=0)
    found = verdict(replace(facts, half=half))
    assert found.causes[0].code is code
    (group,) = found.groups
    committed = state is HalfState.COMMITTED
    assert group.causes[0].code is (Code.CONSUMED if committed else code)
    unread = replace(facts, half=half, readable=False)
    assert (Code.TOPIC_UNREADABLE in codes(verdict(unread).causes)) is committed
    if state is HalfState.OPEN:
        assert "checked 2 times; no producer" in found.causes[0].sentence


def test_a_delay_is_over_late_or_unknown(facts, message):
    waiting = replace(message, kind=Kind.DELAYED)

    def of(due_ms, *, delivered=False):
        return verdict(replace(facts, delay=Delay(3, due_ms, waiting, delivered))).causes[0]

    assert (of(2_060_000).code, of(2_060_000).facts["due_ms"]) == (Code.DELAYED, 2_060_000)
    assert of(1_999_000).code is Code.DELAYED, "delivered in turns"
    assert of(1_998_000).code is Code.DELAYED
    assert of(1_997_999).code is Code.DELAY_OVERDUE
    assert of(None).code is Code.DELAYED
    assert of(1_990_000, delivered=True).code is Code.STORED


def test_what_is_not_confirmed_is_seen_by_nobody(facts):
    storage = Storage(1_000, 1_100, False, False)
    found = verdict(replace(facts, storage=storage))
    assert codes(found.causes) == [Code.NOT_CONFIRMED]
    assert codes(found.groups[0].causes)[0] is Code.NOT_CONFIRMED


def test_obstacles_come_in_the_order_of_the_way(facts):
    storage = Storage(1_000, 1_100, True, False)
    shut = replace(facts, storage=storage, read_queues=1, broker_readable=False, readable=False)
    assert codes(verdict(shut).causes) == [
        Code.NOT_CONFIRMED,
        Code.QUEUE_NOT_READ,
        Code.BROKER_UNREADABLE,
        Code.TOPIC_UNREADABLE,
    ]


def test_what_a_group_has_had_stays_so_when_the_topic_is_closed_later(facts):
    closed = replace(facts, readable=False)
    assert codes(verdict(closed).groups[0].causes) == [Code.CONSUMED, Code.TOPIC_UNREADABLE]
    before = replace(closed, groups=(replace(facts.groups[0], online=False, next_offset=2),))
    assert codes(verdict(before).groups[0].causes) == [Code.TOPIC_UNREADABLE, Code.NO_MEMBER]


@pytest.mark.parametrize("unknown", ["readable", "read_queues", "broker_readable", "storage"])
def test_what_is_unknown_makes_no_rule_true(facts, unknown):
    assert codes(verdict(replace(facts, **{unknown: None})).causes) == [Code.STORED]


def test_copies_that_are_missing_stand_beside(facts):
    copies = (
        Copy(0, "h:1", True, "", True, True),
        Copy(1, "h:2", False, "FOLLOWING", False, False, True, 184, 20),
        Copy(2, "h:3", False, why="no answer"),
    )
    storage = Storage(1_000, 1_100, True, True, copies)
    stored, lacking = verdict(replace(facts, storage=storage)).causes
    assert "replicated to 0 of 2 followers" in stored.sentence
    assert lacking.code is Code.COPIES_MISSING
    assert lacking.facts == {"followers": ("brokerId 1",), "lag_bytes": 184}, "not the silent one"


def test_a_follower_that_answers_may_be_behind(facts):
    copies = (Copy(1, "h:2", False, "DETACHED", True, True, lag_ms=9_000),)
    storage = Storage(1_000, 1_100, True, True, copies, by_leader=False)
    causes = verdict(replace(facts, storage=storage)).causes
    assert codes(causes) == [Code.STORED, Code.ANSWERED_BY_FOLLOWER]
    assert causes[1].facts == {"lag_ms": 9_000, "broker_id": 1}


def test_every_code_has_a_meaning_and_some_severity_each():
    assert set(MEANINGS) == set(Code)
    assert {one.severity for one in MEANINGS.values()} == set(Severity)
    assert all(one.title and one.advice.endswith((".", "?")) for one in MEANINGS.values())


def test_times_as_words():
    assert when(0) == "1970-01-01 00:00:00Z"
    assert when(2**62) == f"{2**62} ms"
    lengths = {900: "900 ms", 1_900: "1900 ms", 30_000: "30 s", 200_000: "3 min"}
    assert {ms: duration(ms) for ms in lengths} == lengths
    assert (duration(3 * 3_600_000), duration(5 * 86_400_000)) == ("3 h", "5 d")
