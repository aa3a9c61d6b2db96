"""What members do with a message's queue."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kourou.client.explain.causes import CauseCode
from kourou.client.explain.facts import (
    ConsumerFacts,
    Form,
    GroupFacts,
    Lookup,
    MessageFacts,
    QueueAtMember,
)
from kourou.client.explain.group_rules import (
    STUCK_MS,
    of_queue,
    subscription_conflict,
    subscription_text,
)
from kourou.model.subscription import SQL92, Subscription

NOW_MS = 2_000_000
HOLDER = ConsumerFacts("m1", count_max=10, span_max=20, size_mib_max=100)
AT_IT = QueueAtMember(7, cached=2, first=7, last=9)
BEFORE_IT = QueueAtMember(3, cached=2, first=3, last=5)


@pytest.fixture
def judge(message):
    def causes(*members, **more):
        facts = MessageFacts("ID", NOW_MS, Lookup(Form.KEY), message)
        group = GroupFacts("g", online=True, members=members, next_offset=3, **more)
        return list(of_queue(facts, message, group))

    return causes


def codes(causes) -> list[CauseCode]:
    return [one.code for one in causes]


def holding(queue, **more) -> ConsumerFacts:
    return replace(HOLDER, queue=queue, **more)


def test_others_are_before_it(judge):
    (cause,) = judge(holding(BEFORE_IT))
    assert cause.code is CauseCode.WAITING_BEHIND
    assert (cause.facts["smallest_unfinished"], cause.facts["ahead"]) == (3, 4)
    (cause,) = judge(holding(QueueAtMember(5)))
    assert (cause.facts["smallest_unfinished"], cause.facts["ahead"]) == (5, 2)
    (cause,) = judge(holding(QueueAtMember(1)))
    assert cause.facts["ahead"] == 4, "what is committed counts as done"


def test_a_handler_is_stuck_when_the_smallest_stands_for_long(judge):
    stuck = replace(AT_IT, since_ms=NOW_MS - STUCK_MS)
    assert codes(judge(holding(stuck))) == [CauseCode.MEMBER_STUCK, CauseCode.IN_HANDS]
    assert codes(judge(holding(replace(stuck, since_ms=NOW_MS - STUCK_MS + 1)))) == [
        CauseCode.IN_HANDS
    ]
    before = replace(BEFORE_IT, since_ms=NOW_MS - STUCK_MS)
    assert codes(judge(holding(before))) == [CauseCode.MEMBER_STUCK, CauseCode.WAITING_BEHIND]


@pytest.mark.parametrize(
    ("queue", "limit"),
    [
        (replace(BEFORE_IT, cached=11), "11 messages cached, limit 10"),
        (replace(BEFORE_IT, cached_mib=101), "101 MiB cached, limit 100"),
        (replace(BEFORE_IT, first=-20), "span 25 offsets, limit 20"),
    ],
)
def test_a_member_that_has_enough_pulls_no_more(judge, queue, limit):
    flow, waiting = judge(holding(queue))
    assert (flow.code, waiting.code) == (CauseCode.FLOW_CONTROLLED, CauseCode.WAITING_BEHIND)
    assert limit in flow.facts["limit"]
    exact = replace(queue, cached=min(queue.cached, 10), cached_mib=100, first=-15)
    assert codes(judge(holding(exact))) == [CauseCode.WAITING_BEHIND], "a limit may be reached"


def test_what_is_in_hands_is_not_paused(judge):
    assert codes(judge(holding(replace(AT_IT, cached=11)))) == [CauseCode.IN_HANDS]


def test_ordered_queues_have_no_span(judge):
    wide = replace(BEFORE_IT, first=-20)
    assert codes(judge(holding(wide, ordered=True))) == [CauseCode.WAITING_BEHIND]


def test_another_client_has_the_lock(judge):
    (cause,) = judge(HOLDER, lock_owner="m9")
    assert (cause.code, cause.facts) == (
        CauseCode.QUEUE_LOCKED,
        {"owner": "m9", "connected": False},
    )
    (cause,) = judge(HOLDER, lock_owner="m1")
    assert cause.facts["connected"] is True
    held = judge(holding(AT_IT, ordered=True), lock_owner="m1")
    assert codes(held) == [CauseCode.IN_HANDS], "its own"
    taken = judge(holding(AT_IT, ordered=True), lock_owner="m9")
    assert codes(taken) == [CauseCode.QUEUE_LOCKED, CauseCode.IN_HANDS]


def test_nobody_has_the_queue(judge):
    assert codes(judge(HOLDER)) == [CauseCode.QUEUE_UNASSIGNED]
    (cause,) = judge(HOLDER, ConsumerFacts("m2", silent="timed out"))
    assert cause.code is CauseCode.MEMBER_SILENT, "it may have it"
    assert cause.facts == {"member": "m2", "why": "timed out"}


def test_members_that_want_the_same_do_not_clash(message):
    paid = Subscription("orders", "paid||late", tags=frozenset({"paid", "late"}))
    same = Subscription("orders", "late || paid", tags=frozenset({"late", "paid"}))
    silent = ConsumerFacts("m3", silent="timed out")
    members = (
        ConsumerFacts("m1", subscription=paid),
        ConsumerFacts("m2", subscription=same),
        silent,
    )
    assert subscription_conflict(message, GroupFacts("g", members=members)) is None


def test_what_a_member_wants_as_text():
    sql = Subscription("orders", "price > 3", SQL92)
    code = Subscription("orders", "even", class_filter_mode=True)
    texts = [
        subscription_text(None),
        subscription_text(Subscription("orders")),
        subscription_text(sql),
        subscription_text(code),
    ]
    assert texts == ["not subscribed", "*", "price > 3", "filter even"]
