"""What follows from the facts about one group: copies, trace, progress, and what bars it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kourou.client.explain.causes import CauseCode
from kourou.client.explain.facts import (
    ConsumerFacts,
    CopyKind,
    Delivery,
    FilterFacts,
    FilterResult,
    Form,
    GroupFacts,
    Lookup,
    MessageFacts,
    QueueAtMember,
    Reset,
    Skip,
)
from kourou.client.explain.group_rules import (
    STUCK_MS,
    causes_of_group,
    crossing,
    exclusions_of,
    held_by_filter,
    let_through,
    of_queue,
    subscription_conflict,
    subscription_text,
)
from kourou.filtering.tags import parse_tags
from kourou.model.filter import FilterPolicy, FilterState, FilterVersion
from kourou.model.message import DELAY_LEVELS_MS
from kourou.model.subscription import (
    SQL92,
    ConsumeFromWhere,
    ConsumeType,
    GroupConfig,
    MessageModel,
    Subscription,
)
from kourou.model.topic import MessageQueue

ALL = Subscription("orders")
PAID = Subscription("orders", "paid", tags=frozenset({"paid"}))
LAST = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET


def codes(causes) -> list[CauseCode]:
    return [one.code for one in causes]


@pytest.fixture
def group() -> GroupFacts:
    """A group that is before the message, with one member that has its queue."""
    holder = ConsumerFacts("m1", subscription=ALL, queue=QueueAtMember(3))
    return GroupFacts(
        "g", GroupConfig("g"), True, subscription=ALL, members=(holder,), next_offset=3
    )


@pytest.fixture
def judge(message):
    """The causes of a group's facts."""

    def causes(group, *places):
        places = (message, *places)
        facts = MessageFacts(
            "ID",
            2_000_000,
            Lookup(Form.KEY),
            message,
            places,
            delay_levels_ms=DELAY_LEVELS_MS,
        )
        return causes_of_group(facts, message, group)

    return causes


@pytest.fixture
def copy_of(message):
    """A copy that was stored because the group failed."""

    def make(kind, stored_ms, *, offset=0, attempts=1, topic="%RETRY%g", **properties):
        return replace(
            message,
            kind=kind,
            group="g",
            queue=MessageQueue(topic, "broker-a", 0),
            offset=offset,
            stored_ms=stored_ms,
            attempts=attempts,
            properties=properties,
        )

    return make


# -- attempts -------------------------------------------------------------------------------------


def test_a_retry_without_a_level_is_due_at_an_unknown_time(group, judge, copy_of):
    (cause,) = judge(group, copy_of(CopyKind.RETRY_WAIT, 1_500_000))
    assert (cause.code, cause.facts["due_ms"]) == (CauseCode.IN_RETRY, None)


def test_of_a_dead_letter_that_failed_once_more_the_newest_counts(group, judge, copy_of):
    dead_letter = copy_of(CopyKind.DEAD_LETTER, 1_500_000, attempts=17, topic="%DLQ%g")
    assert codes(judge(replace(group, dealt_with=0), dead_letter)) == [CauseCode.DEAD_LETTERED]
    again = copy_of(CopyKind.RETRY, 1_600_000, attempts=0)
    failed = copy_of(CopyKind.DEAD_LETTER, 1_700_000, topic="%DLQ%g", offset=1)
    done = replace(group, retry_next=1)
    assert codes(judge(done, dead_letter, again, failed)) == [CauseCode.DEAD_LETTERED]


def test_copies_of_other_groups_are_theirs(group, judge, copy_of):
    theirs = replace(copy_of(CopyKind.RETRY, 1_500_000), group="h")
    assert codes(judge(replace(group, next_offset=8), theirs)) == [CauseCode.CONSUMED]


# -- what happened --------------------------------------------------------------------------------


def test_a_handler_that_succeeded_comes_before_progress(group, judge):
    failed = Delivery(1_000, 1, 1_100, False, "exception")
    worked = Delivery(2_000, 2, 2_100, True, "success")
    (cause,) = judge(replace(group, deliveries=(failed, worked)))
    assert cause.facts == {"proof": "trace", "at_ms": 2_100, "attempt": 2}
    assert judge(replace(group, deliveries=(failed,)))[0].code is CauseCode.WAITING_BEHIND


def reset(event, before, after) -> Reset:
    return Reset(1_500_000, "till:1", "too many", before, after, event)


def test_the_newest_reset_over_it_counts(group, judge):
    beyond = replace(group, next_offset=9)
    (cause,) = judge(replace(beyond, resets=(reset(1, 3, 9),)))
    assert cause.code is CauseCode.RESET_PAST
    assert (cause.facts["actor"], cause.facts["reason"], cause.facts["event"]) == (
        "till:1",
        "too many",
        1,
    )
    back = (reset(1, 3, 9), reset(2, 9, 0))
    assert codes(judge(replace(beyond, resets=back))) == [CauseCode.CONSUMED], "it came after that"
    behind = (reset(1, 3, 5), reset(2, 8, 9))
    assert codes(judge(replace(beyond, resets=behind))) == [CauseCode.CONSUMED]


def test_a_reset_crosses_an_offset_between_its_ends():
    found = reset(1, 3, 7)
    assert [crossing((found,), offset) for offset in (2, 3, 6, 7)] == [None, found, found, None]
    new = reset(1, None, 7)
    assert crossing((new,), 0) is new


def test_a_new_group_began_behind_it(group, judge):
    beyond = replace(group, next_offset=9, start_from=LAST)
    assert codes(judge(beyond)) == [CauseCode.CONSUMED], "nothing says when it began"
    later = replace(beyond, created_ms=1_000_001)
    assert codes(judge(later)) == [CauseCode.SKIPPED_BY_CONSUME_FROM_LAST]
    assert codes(judge(replace(beyond, created_ms=999_999))) == [CauseCode.CONSUMED]
    elsewhere = replace(beyond, created_ms=999_999, had_progress=False)
    assert codes(judge(elsewhere)) == [CauseCode.SKIPPED_BY_CONSUME_FROM_LAST]
    first = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    assert codes(judge(replace(later, start_from=first))) == [CauseCode.CONSUMED]


# -- what bars it ---------------------------------------------------------------------------------


def test_a_group_of_which_nothing_is_known(judge):
    assert codes(judge(GroupFacts("g", GroupConfig("g")))) == [CauseCode.UNDECIDED]


def test_a_group_that_pulls(group, judge):
    pulls = replace(group, consume_type=ConsumeType.CONSUME_ACTIVELY, members=())
    assert codes(judge(pulls)) == [CauseCode.PULL_CONSUMER]
    every = replace(pulls, model=MessageModel.BROADCASTING)
    assert codes(judge(every)) == [CauseCode.PULL_CONSUMER]


def test_members_that_differ_come_first_where_nobody_has_the_queue(group, judge):
    other = ConsumerFacts("m2", subscription=PAID)
    found = judge(replace(group, members=(*group.members, other)))
    assert codes(found) == [CauseCode.WAITING_BEHIND, CauseCode.SUBSCRIPTIONS_CLASH]
    idle = replace(group.members[0], queue=None)
    found = judge(replace(group, members=(idle, other)))
    assert codes(found) == [CauseCode.SUBSCRIPTIONS_CLASH, CauseCode.QUEUE_UNASSIGNED]


def test_members_that_differ_stand_beside_what_one_of_them_did_not_want(group, judge):
    late = Subscription("orders", "late", tags=frozenset({"late"}))
    other = ConsumerFacts("m2", subscription=late)
    beyond = replace(group, subscription=late, next_offset=8, members=(ConsumerFacts("m1"), other))
    assert codes(judge(beyond)) == [CauseCode.FILTERED_BY_TAG, CauseCode.SUBSCRIPTIONS_CLASH]


def test_of_a_copy_that_is_all_that_is_left_only_its_group_is_explained(group, copy_of):
    dead_letter = copy_of(CopyKind.DEAD_LETTER, 1_500_000, topic="%DLQ%g")
    facts = MessageFacts("ID", 2_000_000, Lookup(Form.KEY), dead_letter, (dead_letter,))
    assert codes(causes_of_group(facts, dead_letter, group)) == [CauseCode.DEAD_LETTERED]
    other = replace(group, name="h")
    assert codes(causes_of_group(facts, dead_letter, other)) == [CauseCode.UNDECIDED]


# -- subscriptions and filters ---------------------------------------------------------------------


RUNS = FilterState("g", "even", (FilterVersion(2, "", "", "", 0, 0, enabled_ms=900_000),), active=2)
BY_CODE = Subscription("orders", "even", class_filter_mode=True)


def wanting(subscription, **more) -> GroupFacts:
    return GroupFacts("g", subscription=subscription, **more)


def filtering(state=RUNS, **more) -> GroupFacts:
    return wanting(BY_CODE, filter=FilterFacts("even", state, 1, **more))


def test_a_message_without_a_tag_is_only_for_who_wants_all(message):
    bare = replace(message, properties={})
    (cause,) = exclusions_of(bare, wanting(parse_tags("orders", "paid")))
    assert cause.facts == {"tag": None, "expression": "paid"}
    assert "no tag" in cause.sentence


@pytest.mark.parametrize(
    ("expression", "denied"),
    [("price > 5", False), ("price > 7", True), ("TAGS = 'paid'", False), ("nobody = 1", True)],
)
def test_properties_are_evaluated_as_brokers_do(message, expression, denied):
    found = codes(exclusions_of(message, wanting(Subscription("orders", expression, SQL92))))
    assert found == ([CauseCode.FILTERED_BY_SQL] if denied else [])


def test_what_cannot_be_read_says_nothing(message):
    assert codes(exclusions_of(message, wanting(Subscription("orders", "price >", SQL92)))) == []


def test_the_member_that_has_the_queue_decides(message):
    late = ConsumerFacts("m1", subscription=parse_tags("orders", "late"), queue=QueueAtMember(1))
    group = wanting(parse_tags("orders", "paid"), members=(late,))
    assert codes(exclusions_of(message, group)) == [CauseCode.FILTERED_BY_TAG]
    idle = replace(late, queue=None)
    assert codes(exclusions_of(message, replace(group, members=(idle,)))) == []


def test_a_filter_said_no(message):
    (cause,) = exclusions_of(message, filtering(filter_result=FilterResult(2, False)))
    assert cause.facts == {"filter": "even", "version": 2, "since_ms": 900_000}
    assert codes(exclusions_of(message, filtering(filter_result=FilterResult(2, True)))) == []
    assert (
        codes(exclusions_of(message, filtering(filter_result=FilterResult(2, None, "it raised"))))
        == []
    )
    assert codes(exclusions_of(message, filtering())) == [], "nobody could ask it"


def test_a_quarantined_filter_that_lets_all_through_says_no_to_nobody(message):
    through = replace(RUNS, quarantined={2: "it raised"}, policy=FilterPolicy.PASS)
    group = filtering(through, filter_result=FilterResult(2, False))
    assert codes(exclusions_of(message, group)) == []
    assert codes(let_through(group)) == [CauseCode.PASSED_UNFILTERED]
    assert codes(held_by_filter(message, group)) == []
    assert codes(let_through(filtering())) == []


def test_a_recorded_skip_comes_before_what_it_says_now(message):
    skip = Skip(1_100_000, 1, "it raised")
    (cause,) = exclusions_of(message, filtering(skip=skip, filter_result=FilterResult(2, False)))
    assert cause.code is CauseCode.FILTER_SKIPPED
    assert cause.facts["version"] == 1


@pytest.mark.parametrize(
    ("state", "code"),
    [
        (None, CauseCode.FILTER_MISSING),
        (replace(RUNS, active=None), CauseCode.FILTER_DISABLED),
        (replace(RUNS, quarantined={2: "it raised"}), CauseCode.FILTER_QUARANTINED),
        (replace(RUNS, quarantined={1: "an older one"}), None),
        (RUNS, None),
    ],
)
def test_a_group_waits_for_its_filter(message, state, code):
    assert codes(held_by_filter(message, filtering(state))) == ([] if code is None else [code])


def test_a_filter_that_runs_and_cannot_judge(message):
    alone = wanting(BY_CODE, filter=FilterFacts("even", RUNS, 0))
    (cause,) = held_by_filter(message, alone)
    assert (cause.code, cause.facts["servers"]) == (CauseCode.FILTER_HOLDS, 0)
    member = ConsumerFacts("m1", filter_waits="KeyError: 'n'")
    (cause,) = held_by_filter(message, replace(filtering(), members=(member,)))
    assert cause.facts["reason"] == "KeyError: 'n'"


def test_whoever_names_no_filter_waits_for_none(message):
    plain = replace(filtering(None), subscription=Subscription("orders"))
    assert codes(held_by_filter(message, plain)) == []


# -- the message's queue at members ----------------------------------------------------------------


NOW_MS = 2_000_000
HOLDER = ConsumerFacts("m1", count_max=10, span_max=20, size_mib_max=100)
AT_IT = QueueAtMember(7, cached=2, first=7, last=9)
BEFORE_IT = QueueAtMember(3, cached=2, first=3, last=5)


@pytest.fixture
def judge_queue(message):
    def causes(*members, **more):
        facts = MessageFacts("ID", NOW_MS, Lookup(Form.KEY), message)
        group = GroupFacts("g", online=True, members=members, next_offset=3, **more)
        return list(of_queue(facts, message, group))

    return causes


def holding(queue, **more) -> ConsumerFacts:
    return replace(HOLDER, queue=queue, **more)


def test_others_are_before_it(judge_queue):
    (cause,) = judge_queue(holding(BEFORE_IT))
    assert cause.code is CauseCode.WAITING_BEHIND
    assert (cause.facts["smallest_unfinished"], cause.facts["ahead"]) == (3, 4)
    (cause,) = judge_queue(holding(QueueAtMember(5)))
    assert (cause.facts["smallest_unfinished"], cause.facts["ahead"]) == (5, 2)
    (cause,) = judge_queue(holding(QueueAtMember(1)))
    assert cause.facts["ahead"] == 4, "what is committed counts as done"


def test_a_handler_is_stuck_when_the_smallest_stands_for_long(judge_queue):
    stuck = replace(AT_IT, since_ms=NOW_MS - STUCK_MS)
    assert codes(judge_queue(holding(stuck))) == [CauseCode.MEMBER_STUCK, CauseCode.IN_PROGRESS]
    assert codes(judge_queue(holding(replace(stuck, since_ms=NOW_MS - STUCK_MS + 1)))) == [
        CauseCode.IN_PROGRESS
    ]
    before = replace(BEFORE_IT, since_ms=NOW_MS - STUCK_MS)
    assert codes(judge_queue(holding(before))) == [CauseCode.MEMBER_STUCK, CauseCode.WAITING_BEHIND]


@pytest.mark.parametrize(
    ("queue", "limit"),
    [
        (replace(BEFORE_IT, cached=11), "11 messages cached, limit 10"),
        (replace(BEFORE_IT, cached_mib=101), "101 MiB cached, limit 100"),
        (replace(BEFORE_IT, first=-20), "span 25 offsets, limit 20"),
    ],
)
def test_a_member_that_has_enough_pulls_no_more(judge_queue, queue, limit):
    flow, waiting = judge_queue(holding(queue))
    assert (flow.code, waiting.code) == (CauseCode.FLOW_CONTROLLED, CauseCode.WAITING_BEHIND)
    assert limit in flow.facts["limit"]
    exact = replace(queue, cached=min(queue.cached, 10), cached_mib=100, first=-15)
    assert codes(judge_queue(holding(exact))) == [CauseCode.WAITING_BEHIND], (
        "a limit may be reached"
    )


def test_what_is_in_hands_is_not_paused(judge_queue):
    assert codes(judge_queue(holding(replace(AT_IT, cached=11)))) == [CauseCode.IN_PROGRESS]


def test_ordered_queues_have_no_span(judge_queue):
    wide = replace(BEFORE_IT, first=-20)
    assert codes(judge_queue(holding(wide, ordered=True))) == [CauseCode.WAITING_BEHIND]


def test_another_client_has_the_lock(judge_queue):
    (cause,) = judge_queue(HOLDER, lock_owner="m9")
    assert (cause.code, cause.facts) == (
        CauseCode.QUEUE_LOCKED,
        {"owner": "m9", "connected": False},
    )
    (cause,) = judge_queue(HOLDER, lock_owner="m1")
    assert cause.facts["connected"] is True
    held = judge_queue(holding(AT_IT, ordered=True), lock_owner="m1")
    assert codes(held) == [CauseCode.IN_PROGRESS], "its own"
    taken = judge_queue(holding(AT_IT, ordered=True), lock_owner="m9")
    assert codes(taken) == [CauseCode.QUEUE_LOCKED, CauseCode.IN_PROGRESS]


def test_nobody_has_the_queue(judge_queue):
    assert codes(judge_queue(HOLDER)) == [CauseCode.QUEUE_UNASSIGNED]
    (cause,) = judge_queue(HOLDER, ConsumerFacts("m2", silent="timed out"))
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
