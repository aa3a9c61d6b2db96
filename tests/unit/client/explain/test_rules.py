"""What follows from facts about a message, rule by rule; no cluster is asked."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from kourou.client.explain.causes import MEANINGS, CauseCode, Severity, duration, when
from kourou.client.explain.explanation import PAGE
from kourou.client.explain.facts import (
    CopyKind,
    Delay,
    Form,
    GroupFacts,
    Half,
    HalfState,
    Lookup,
    MessageFacts,
    MissingFact,
    ReplicaCopy,
    Storage,
)
from kourou.client.explain.rules import conclude
from kourou.model.subscription import GroupConfig
from kourou.model.topic import MessageQueue

QUEUE = MessageQueue("orders", "broker-a", 1)


def codes(causes) -> list[CauseCode]:
    return [one.code for one in causes]


@pytest.fixture
def facts(message) -> MessageFacts:
    """A message that is stored, confirmed and readable, of a topic with one group."""
    storage = Storage(1_000, 1_100, True, True, (ReplicaCopy(0, "h:1", True, "", True, True),))
    return MessageFacts(
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


def absent(**lookup) -> MessageFacts:
    place = {"form": Form.PLACE, "place": (QUEUE, 7), "bounds": (3, 9)}
    return MessageFacts("orders/broker-a/1@7", 0, Lookup(**{**place, **lookup}))


@pytest.mark.parametrize(
    ("lookup", "code", "known"),
    [
        ({"bounds": (8, 9)}, CauseCode.EXPIRED, {"lowest_offset": 8}),
        ({"bounds": (7, 9)}, CauseCode.NOT_CONFIRMED, {}),
        ({"bounds": (3, 7)}, CauseCode.NEVER_STORED, {"queue_end": 7}),
        ({"queue_known": False}, CauseCode.NEVER_STORED, {}),
        ({"queue_known": False, "bounds": None, "queues": 1}, CauseCode.NOT_FOUND, {"queues": 1}),
        ({"queue_known": False, "bounds": None, "queues": 2}, CauseCode.NEVER_STORED, {}),
        ({"bounds": (3, 7), "queues": 1}, CauseCode.NEVER_STORED, {"queue_end": 7}),
        ({}, CauseCode.NOT_CONFIRMED, {"queue_end": 9}),
        ({"behind": ("brokerId 1",)}, CauseCode.NOT_CONFIRMED, {"behind": ("brokerId 1",)}),
        ({"damage": "its checksum"}, CauseCode.BODY_DAMAGED, {"damage": "its checksum"}),
        ({"topic_known": False}, CauseCode.NOT_FOUND, {"topic": "orders"}),
        ({"broker_known": False}, CauseCode.BROKER_AWAY, {"brokers": ("broker-a",)}),
        ({"unreachable": ("broker-a",)}, CauseCode.BROKER_AWAY, {"brokers": ("broker-a",)}),
        ({"form": Form.OFFSET_ID, "host_known": False}, CauseCode.BROKER_AWAY, {"host": ""}),
        (
            {"form": Form.KEY, "unreachable": ("broker-b",)},
            CauseCode.BROKER_AWAY,
            {"brokers": ("broker-b",)},
        ),
        ({"form": Form.KEY, "topic": "t"}, CauseCode.NOT_FOUND, {"topic": "t"}),
        ({"form": Form.OFFSET_ID}, CauseCode.NOT_FOUND, {"topic": None}),
    ],
)
def test_what_is_not_there(lookup, code, known):
    (cause,) = conclude(absent(**lookup)).causes
    assert cause.code is code
    assert known.items() <= dict(cause.facts).items()


def test_what_expired_says_how_long_messages_are_kept_if_that_is_known():
    def said(**more):
        return conclude(absent(bounds=(8, 9), **more)).causes[0].sentence

    assert "kept for 72 h" in said(reserved_hours=72)
    assert "kept" not in said()


def test_what_is_not_confirmed_says_whom_it_waits_for():
    def said(**more):
        return conclude(absent(**more)).causes[0].sentence

    both = said(behind=("brokerId 1",), flushed=False)
    assert "waits for brokerId 1 to copy it and the disk" in both
    assert "waits" not in said(flushed=True)
    assert "waits" not in said()


def test_what_is_stored_says_how_safely(facts):
    found = conclude(facts)
    assert codes(found.causes) == [CauseCode.STORED]
    assert "flushed to disk; committed" in found.causes[0].sentence


def test_nobody_consumes_only_where_that_is_known(facts):
    alone = replace(facts, groups=())
    assert codes(conclude(alone).causes) == [CauseCode.NOBODY_CONSUMES]
    unknown = replace(alone, groups_known=False, missing=(MissingFact("groups", "no answer"),))
    assert codes(conclude(unknown).causes) == [CauseCode.STORED]


@pytest.mark.parametrize(
    ("state", "code"),
    [
        (HalfState.OPEN, CauseCode.TRANSACTION_OPEN),
        (HalfState.ROLLED_BACK, CauseCode.TRANSACTION_ROLLED_BACK),
        (HalfState.GIVEN_UP, CauseCode.TRANSACTION_GIVEN_UP),
        (HalfState.UNKNOWN, CauseCode.TRANSACTION_UNKNOWN),
        (HalfState.COMMITTED, CauseCode.STORED),
    ],
)
def test_half_a_message_is_nobodys_whatever_else_holds(facts, message, state, code):
    half = Half(state, "shop", 2, replace(message, kind=CopyKind.HALF), producers=0)
    found = conclude(replace(facts, half=half))
    assert found.causes[0].code is code
    (group,) = found.groups
    committed = state is HalfState.COMMITTED
    assert group.causes[0].code is (CauseCode.CONSUMED if committed else code)
    unread = replace(facts, half=half, readable=False)
    assert (CauseCode.TOPIC_UNREADABLE in codes(conclude(unread).causes)) is committed
    if state is HalfState.OPEN:
        assert "checked 2 times; no producer" in found.causes[0].sentence


def test_a_delay_is_over_late_or_unknown(facts, message):
    waiting = replace(message, kind=CopyKind.DELAYED)

    def of(due_ms, *, delivered=False):
        return conclude(replace(facts, delay=Delay(3, due_ms, waiting, delivered))).causes[0]

    assert (of(2_060_000).code, of(2_060_000).facts["due_ms"]) == (CauseCode.DELAYED, 2_060_000)
    assert of(1_999_000).code is CauseCode.DELAYED, "delivered in turns"
    assert of(1_998_000).code is CauseCode.DELAYED
    assert of(1_997_999).code is CauseCode.DELAY_OVERDUE
    assert of(None).code is CauseCode.DELAYED
    assert of(1_990_000, delivered=True).code is CauseCode.STORED


def test_what_is_not_confirmed_is_seen_by_nobody(facts):
    storage = Storage(1_000, 1_100, False, False)
    found = conclude(replace(facts, storage=storage))
    assert codes(found.causes) == [CauseCode.NOT_CONFIRMED]
    assert codes(found.groups[0].causes)[0] is CauseCode.NOT_CONFIRMED


def test_obstacles_come_in_the_order_of_the_way(facts):
    storage = Storage(1_000, 1_100, True, False)
    shut = replace(facts, storage=storage, read_queues=1, broker_readable=False, readable=False)
    assert codes(conclude(shut).causes) == [
        CauseCode.NOT_CONFIRMED,
        CauseCode.QUEUE_NOT_READ,
        CauseCode.BROKER_UNREADABLE,
        CauseCode.TOPIC_UNREADABLE,
    ]


def test_what_a_group_has_had_stays_so_when_the_topic_is_closed_later(facts):
    closed = replace(facts, readable=False)
    assert codes(conclude(closed).groups[0].causes) == [
        CauseCode.CONSUMED,
        CauseCode.TOPIC_UNREADABLE,
    ]
    before = replace(closed, groups=(replace(facts.groups[0], online=False, next_offset=2),))
    assert codes(conclude(before).groups[0].causes) == [
        CauseCode.TOPIC_UNREADABLE,
        CauseCode.NO_MEMBER,
    ]


@pytest.mark.parametrize("unknown", ["readable", "read_queues", "broker_readable", "storage"])
def test_what_is_unknown_makes_no_rule_true(facts, unknown):
    assert codes(conclude(replace(facts, **{unknown: None})).causes) == [CauseCode.STORED]


def test_copies_that_are_missing_stand_beside(facts):
    copies = (
        ReplicaCopy(0, "h:1", True, "", True, True),
        ReplicaCopy(1, "h:2", False, "FOLLOWING", False, False, True, 184, 20),
        ReplicaCopy(2, "h:3", False, why="no answer"),
    )
    storage = Storage(1_000, 1_100, True, True, copies)
    stored, lacking = conclude(replace(facts, storage=storage)).causes
    assert "replicated to 0 of 2 followers" in stored.sentence
    assert lacking.code is CauseCode.COPIES_MISSING
    assert lacking.facts == {"followers": ("brokerId 1",), "lag_bytes": 184}, "not the silent one"


def test_a_follower_that_answers_may_be_behind(facts):
    copies = (ReplicaCopy(1, "h:2", False, "DETACHED", True, True, lag_ms=9_000),)
    storage = Storage(1_000, 1_100, True, True, copies, by_leader=False)
    causes = conclude(replace(facts, storage=storage)).causes
    assert codes(causes) == [CauseCode.STORED, CauseCode.ANSWERED_BY_FOLLOWER]
    assert causes[1].facts == {"lag_ms": 9_000, "broker_id": 1}


def test_every_code_has_a_meaning_and_some_severity_each():
    assert set(MEANINGS) == set(CauseCode)
    assert {one.severity for one in MEANINGS.values()} == set(Severity)
    assert all(one.title and one.advice.endswith((".", "?")) for one in MEANINGS.values())


def test_times_as_words():
    assert when(0) == "1970-01-01 00:00:00Z"
    assert when(2**62) == f"{2**62} ms"
    lengths = {900: "900 ms", 1_900: "1900 ms", 30_000: "30 s", 200_000: "3 min"}
    assert {ms: duration(ms) for ms in lengths} == lengths
    assert (duration(3 * 3_600_000), duration(5 * 86_400_000)) == ("3 h", "5 d")


# -- the page of codes -----------------------------------------------------------------------------


HERE = Path(__file__).parents[4] / "docs" / PAGE


def test_the_page_has_every_code_with_what_to_do():
    text = HERE.read_text(encoding="utf-8")
    sections = dict(re.findall(r"^### (\w+)\n\n(.+?)\n", text, re.MULTILINE))
    assert list(sections) == [code.value for code in CauseCode]
    for code, meaning in MEANINGS.items():
        expected = f"**{meaning.title}** ({meaning.severity.value}). {meaning.advice}"
        assert sections[code.value] == expected
