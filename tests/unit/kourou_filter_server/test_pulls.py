from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from kourou.errors import Code
from kourou.model.filter import FilterPolicy
from kourou.protocol.messages.filter_server import (
    ChangeFilter,
    GetFilters,
    RecordFilterSkip,
    RegisterFilterServer,
    RegisterFilterServerResponse,
)
from kourou.protocol.messages.pulls import PullFlag, PullMessage, PullResponse
from kourou.runtime import Disconnected, LogWarning, Reply
from kourou_filter_server.context import ServerPolicy
from kourou_filter_server.interface import (
    AskBroker,
    BrokerFound,
    EndWorker,
    EvaluateBatch,
    Filtered,
    FiltersChanged,
    Leaving,
    StartWorker,
)
from kourou_rigs.filter_bench import (
    GROUP,
    NAME,
    TOPIC,
    Bench,
    a_pull,
    judged_bytes,
    place,
    record,
    state,
)

pytestmark = pytest.mark.feature("F241")
Benches = Callable[..., Bench]


def header_of(reply: Reply) -> PullResponse:
    assert isinstance(reply.header, PullResponse)
    return reply.header


def evaluated(
    bench: Bench, offset: int, records: int, results: str, **pull: object
) -> Reply | None:
    """A pull whose messages get these verdicts; its answer, if it has one then."""
    upstream = bench.pull(offset, **pull)
    bench.found(upstream, *(record(offset + each) for each in range(records)))
    bench.results(bench.done(EvaluateBatch), results)
    replies = bench.all(Reply)
    return replies[0] if replies else None


def test_a_pull_becomes_the_same_pull_without_its_filter(bench: Bench) -> None:
    flags = PullFlag.CLASS_FILTER | PullFlag.SUBSCRIPTION | PullFlag.SUSPEND
    asked = bench.pull(5, 10_000, sys_flag=int(flags | PullFlag.COMMIT_OFFSET), commit_offset=4)
    wanted = a_pull(
        5,
        10_000,
        sys_flag=int(PullFlag.SUBSCRIPTION | PullFlag.SUSPEND | PullFlag.COMMIT_OFFSET),
        commit_offset=4,
        subscription="*",
    )
    assert asked.request == wanted
    assert asked.timeout_ms > 10_000


def test_what_passes_leaves_with_the_brokers_next_offset(bench: Bench) -> None:
    bench.serving()
    reply = evaluated(bench, 10, 4, "0110")
    assert reply is not None
    assert (reply.code, reply.remark) == (Code.SUCCESS, "FOUND")
    assert judged_bytes(reply) == record(11) + record(12)
    assert len(reply.body) == 1  # clients read the first part
    assert header_of(reply) == PullResponse(
        suggest_which_broker_id=1,
        next_begin_offset=14,
        min_offset=0,
        max_offset=100,
        filter_version=1,
    )


@pytest.mark.parametrize(
    ("code", "remark"),
    [
        (Code.PULL_NOT_FOUND, "NO_NEW_MESSAGE"),
        (Code.PULL_OFFSET_MOVED, "OFFSET_ILLEGAL"),
        (Code.MESSAGE_CORRUPT, "unreadable offsets: 7"),
        (Code.TOPIC_NOT_EXIST, "no such topic"),
        (Code.NO_PERMISSION, "not readable"),
    ],
)
def test_other_answers_are_handed_on(bench: Bench, code: Code, remark: str) -> None:
    bench.serving()
    asked = bench.pull(5)
    bench.answer(asked, place(9), b"never unfiltered", code, remark)
    reply = bench.done(Reply)
    assert (reply.code, reply.remark, reply.header) == (code, remark, place(9))
    assert not reply.body


def test_changed_rights_end_a_pull_that_waits_and_not_one_that_is_filtered(bench: Bench) -> None:
    bench.serving()
    bench.found(bench.pull(10, 15_000), record(10))
    filtered = bench.done(EvaluateBatch)
    bench.pull(50, 15_000, queue_id=1)
    bench.turn(FiltersChanged(bench.filters_version, rights_changed=True))
    waited = bench.done(Reply)
    assert (waited.code, header_of(waited).next_begin_offset) == (Code.PULL_RETRY_IMMEDIATELY, 50)
    bench.results(filtered, "1")
    assert bench.done(Reply).code == Code.SUCCESS
    assert not len(bench.core.pulls)


def test_without_time_to_hold_nothing_wanted_is_answered_at_once(bench: Bench) -> None:
    bench.serving()
    reply = evaluated(bench, 10, 4, "0000")
    assert reply is not None
    assert reply.code == Code.PULL_RETRY_IMMEDIATELY
    assert header_of(reply).next_begin_offset == 14


def test_with_time_to_hold_it_goes_on_behind_and_then_tells_how_far(bench: Bench) -> None:
    bench.serving()
    commit = PullFlag.CLASS_FILTER | PullFlag.SUSPEND | PullFlag.COMMIT_OFFSET
    assert evaluated(bench, 10, 4, "0000", hold_ms=15_000, sys_flag=int(commit)) is None
    behind = bench.asked(PullMessage)
    request = behind.request
    assert isinstance(request, PullMessage)
    assert request.queue_offset == 14
    assert not request.sys_flag & PullFlag.COMMIT_OFFSET
    assert request.suspend_timeout_millis == 1_000  # its consumer shall learn how far it came
    bench.now_ms += 1_000
    bench.answer(behind, place(14), code=Code.PULL_NOT_FOUND)
    reply = bench.done(Reply)
    assert reply.code == Code.PULL_RETRY_IMMEDIATELY
    assert header_of(reply).next_begin_offset == 14


def test_unreadable_messages_are_reported_though_nothing_passed(bench: Bench) -> None:
    bench.serving()
    for fields, code in (
        ({}, Code.MESSAGE_CORRUPT),
        ({"max_msg_bytes": None}, Code.PULL_RETRY_IMMEDIATELY),
    ):
        asked = bench.pull(10, 15_000, **fields)
        bench.answer(asked, place(12), record(11), remark="unreadable offsets: 10")
        bench.results(bench.done(EvaluateBatch), "0")
        reply = bench.done(Reply)
        assert (reply.code, reply.remark) == (code, "unreadable offsets: 10")
        assert header_of(reply).next_begin_offset == 12


# -- filters that cannot judge --------------------------------------------------------------------


def test_hold_answers_what_was_judged_and_fails_at_the_next_pull(bench: Bench) -> None:
    bench.serving()
    bench.found(bench.pull(10), *(record(each) for each in range(10, 14)))
    bench.results(bench.done(EvaluateBatch), "0122", "raised", "KeyError: 'x'")
    reply = bench.done(Reply)
    assert judged_bytes(reply) == record(11)
    assert header_of(reply).next_begin_offset == 12
    bench.found(bench.pull(12), record(12), record(13))
    bench.results(bench.done(EvaluateBatch), "22", "raised", "KeyError: 'x'")
    failed = bench.done(Reply)
    assert failed.code == Code.FILTER_FAILED
    assert "KeyError: 'x'" in failed.remark
    told = header_of(failed)
    assert (told.next_begin_offset, told.filter_failure, told.filter_version) == (12, "raised", 1)
    assert not failed.body


def test_skip_passes_over_when_that_is_recorded(benches: Benches) -> None:
    bench = benches(policy=FilterPolicy.SKIP)
    bench.serving()
    bench.found(bench.pull(10), *(record(each) for each in range(10, 13)))
    bench.results(bench.done(EvaluateBatch), "122", "raised", "oops")
    bench.results(bench.done(EvaluateBatch), "1")
    asked = bench.asked(RecordFilterSkip)
    assert not bench.all(Reply)
    assert asked.request == RecordFilterSkip(
        consumer_group=GROUP,
        name=NAME,
        version=1,
        topic=TOPIC,
        queue_id=0,
        offsets=[11],
        reason="raised: oops",
    )
    bench.answer(asked)
    reply = bench.done(Reply)
    assert judged_bytes(reply) == record(10) + record(12)
    assert header_of(reply).next_begin_offset == 13


def test_skip_that_cannot_be_recorded_holds(benches: Benches) -> None:
    bench = benches(policy=FilterPolicy.SKIP)
    bench.serving()
    bench.found(bench.pull(10), record(10), record(11))
    bench.results(bench.done(EvaluateBatch), "12", "raised", "oops")
    bench.no_answer(bench.asked(RecordFilterSkip))
    reply = bench.done(Reply)
    assert judged_bytes(reply) == record(10)
    assert header_of(reply).next_begin_offset == 11
    bench.found(bench.pull(11), record(11))
    bench.results(bench.done(EvaluateBatch), "2", "raised", "oops")
    bench.answer(bench.asked(RecordFilterSkip), code=Code.SYSTEM_ERROR, remark="its policy is hold")
    failed = bench.done(Reply)
    assert failed.code == Code.FILTER_FAILED
    assert "its policy is hold" in failed.remark
    assert header_of(failed).next_begin_offset == 11


def test_pass_lets_through_what_cannot_be_judged_and_says_so(benches: Benches) -> None:
    bench = benches(policy=FilterPolicy.PASS)
    bench.serving()
    bench.found(bench.pull(10), *(record(each) for each in range(10, 13)))
    bench.results(bench.done(EvaluateBatch), "022", "raised", "oops")
    assert "unfiltered" in str(bench.done(LogWarning))
    bench.results(bench.done(EvaluateBatch), "0")
    reply = bench.done(Reply)
    assert judged_bytes(reply) == record(11)
    assert bench.core.figures()[0].unfiltered == 1


def test_few_are_excused_in_one_answer(benches: Benches) -> None:
    """A filter that raises at everything takes no more of the worker's time than its share."""
    bench = benches(ServerPolicy(passed_over_max=2), FilterPolicy.SKIP)
    bench.serving()
    bench.found(bench.pull(10), *(record(each) for each in range(10, 15)))
    bench.results(bench.done(EvaluateBatch), "22222", "raised", "oops")
    bench.results(bench.done(EvaluateBatch), "2222", "raised", "oops")
    asked = bench.asked(RecordFilterSkip)
    assert isinstance(asked.request, RecordFilterSkip)
    assert asked.request.offsets == [10, 11]
    bench.answer(asked)
    assert header_of(bench.done(Reply)).next_begin_offset == 12


@pytest.mark.parametrize("policy", [FilterPolicy.SKIP, FilterPolicy.HOLD])
def test_in_quarantine_it_holds_also_under_skip(benches: Benches, policy: FilterPolicy) -> None:
    bench = benches(policy=policy)
    bench.change(replace(bench.state, quarantined={1: "too many failures"}))
    bench.turn(bench.received(a_pull(3)))
    bench.tell_filters(bench.asked(GetFilters))
    reply = bench.done(Reply)
    assert reply.code == Code.FILTER_FAILED
    assert "too many failures" in reply.remark
    assert header_of(reply).filter_failure == "quarantined"
    assert header_of(reply).next_begin_offset == 3


def test_in_quarantine_under_pass_all_goes_through(benches: Benches) -> None:
    bench = benches(policy=FilterPolicy.PASS)
    bench.change(replace(bench.state, quarantined={1: "too many failures"}))
    bench.found(bench.pull(3), record(3), record(4))
    reply = bench.done(Reply)
    assert judged_bytes(reply) == record(3) + record(4)
    assert header_of(reply).filter_version is None  # no version has judged them


@pytest.mark.parametrize("policy", FilterPolicy)
def test_a_filter_that_was_switched_off_holds_under_any_policy(
    benches: Benches, policy: FilterPolicy
) -> None:
    bench = benches(policy=policy)
    bench.change(replace(bench.state, active=None))
    bench.turn(bench.received(a_pull(3)))
    bench.tell_filters(bench.asked(GetFilters))
    assert header_of(bench.done(Reply)).filter_failure == "disabled"


def test_before_a_filter_is_said_to_be_missing_the_broker_is_asked(bench: Bench) -> None:
    bench.change(None)
    bench.turn(bench.received(a_pull()))
    assert not bench.all(Reply)
    bench.tell_filters(bench.asked(GetFilters))
    assert header_of(bench.done(Reply)).filter_failure == "missing"
    # At once again: it waits its second, unless the filter comes meanwhile.
    bench.turn(bench.received(a_pull()))
    assert not bench.effects
    bench.change(state(1))
    assert bench.asked(PullMessage).request.queue_offset == 0  # type: ignore[attr-defined]  # a pull has one


def test_the_broker_is_asked_once_a_second_about_a_missing_filter(bench: Bench) -> None:
    bench.change(None)
    for _ in range(2):
        bench.turn(bench.received(a_pull()))
        if bench.effects:
            bench.tell_filters(bench.asked(GetFilters))
    assert not bench.pass_time(900)
    bench.pass_time(100)
    bench.tell_filters(bench.asked(GetFilters))
    assert bench.done(Reply).code == Code.FILTER_FAILED


# -- the broker, and time -------------------------------------------------------------------------


def test_a_broker_that_is_away_is_said_to_be_away(bench: Bench) -> None:
    bench.serving()
    bench.no_answer(bench.pull(7))
    assert bench.done(Reply).code == Code.SERVICE_NOT_AVAILABLE


def test_nothing_is_judged_on_what_was_known_before_the_broker_was_away(bench: Bench) -> None:
    bench.serving()
    bench.state = state(1, 2)  # meanwhile, and nobody was told
    bench.turn(BrokerFound())
    register = bench.asked(RegisterFilterServer)
    bench.turn(bench.received(a_pull(7)))
    asked = bench.asked(GetFilters)
    header = RegisterFilterServerResponse(broker_name="b", broker_id=0, filters_version=7)
    bench.answer(register, header)
    assert not bench.all(EvaluateBatch)
    bench.tell_filters(asked)
    assert bench.asked(PullMessage)
    source = next(each for each in bench.all(AskBroker) if each.request.with_source)  # type: ignore[attr-defined]  # the first one
    bench.tell_filters(source)
    assert bench.done(StartWorker).version == 2


def test_pulls_wait_for_the_filters_and_end_if_they_cannot_be_had() -> None:
    bench = Bench()
    bench.turn(bench.received(a_pull()))
    bench.no_answer(bench.asked(GetFilters))
    assert bench.done(Reply).code == Code.SERVICE_NOT_AVAILABLE


def test_a_pull_is_answered_before_its_deadline(bench: Bench) -> None:
    bench.serving()
    upstream = bench.pull(10, 15_000, deadline_ms=2_000)
    assert isinstance(upstream.request, PullMessage)
    assert upstream.request.suspend_timeout_millis < 2_000
    bench.found(upstream, record(10))
    assert bench.done(EvaluateBatch)
    bench.pass_time(1_700)
    assert bench.done(Reply).code == Code.SYSTEM_BUSY  # judged in vain: its consumer asks again


def test_what_is_judged_at_the_deadline_is_answered(benches: Benches) -> None:
    bench = benches(ServerPolicy(batch_messages_max=2))
    bench.serving()
    bench.found(bench.pull(10, deadline_ms=2_000), *(record(each) for each in range(10, 14)))
    bench.results(bench.done(EvaluateBatch), "10")
    bench.pass_time(1_700)
    reply = bench.done(Reply)
    assert judged_bytes(reply) == record(10)
    assert header_of(reply).next_begin_offset == 12


def test_a_full_server_says_so(benches: Benches) -> None:
    bench = benches(ServerPolicy(pulls_max=1))
    bench.pull()
    bench.turn(bench.received(a_pull()))
    assert bench.done(Reply).code == Code.POLLING_FULL
    bench = benches(ServerPolicy(waiting_bytes_max=100))
    bench.found(bench.pull(), record(0))
    bench.turn(bench.received(a_pull()))
    assert bench.done(Reply).code == Code.SYSTEM_BUSY


def test_pulls_without_a_filter_are_not_served(bench: Bench) -> None:
    bench.turn(bench.received(a_pull(sys_flag=int(PullFlag.SUBSCRIPTION))))
    assert bench.done(Reply).code == Code.SYSTEM_ERROR


def test_nobody_answers_a_peer_that_is_gone(bench: Bench) -> None:
    bench.serving()
    upstream = bench.pull(10)
    bench.turn(Disconnected(bench.peer))
    assert not bench.found(upstream, record(10))
    bench.found(bench.pull(10), record(10))
    judge = bench.done(EvaluateBatch)
    bench.turn(Disconnected(bench.peer))
    bench.results(judge, "1")
    assert not bench.all(Reply)
    assert not len(bench.core.pulls)
    assert not bench.core.pulls.waiting_bytes


def test_at_its_end_everybody_is_answered(bench: Bench) -> None:
    bench.serving()
    bench.pull(10, 15_000)
    bench.turn(Leaving())
    assert bench.done(Reply).code == Code.SERVICE_NOT_AVAILABLE
    bench.turn(bench.received(a_pull()))
    assert bench.done(Reply).code == Code.SERVICE_NOT_AVAILABLE


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\0\0\0\1",
        record(0)[:-1],
        record(0) + b"\0",
        record(0, 93)[:90],
        bytes(200),
        b"\xff" * 200,
        b"\x7f\xff\xff\xff" + bytes(200),
    ],
)
def test_a_malformed_answer_of_the_broker_is_no_messages(bench: Bench, body: bytes) -> None:
    bench.serving()
    bench.answer(bench.pull(10), place(11), body)
    reply = bench.done(Reply)
    assert reply.code == Code.SYSTEM_ERROR
    assert not reply.body


def test_what_a_filter_did_goes_into_the_trace(bench: Bench) -> None:
    bench.serving()
    received = bench.received(a_pull(10))
    traced = replace(received.to, trace=bytes(24) + b"\1")
    received.to = traced
    bench.turn(received)
    upstream = bench.done(AskBroker)
    assert upstream.to == traced
    bench.found(upstream, record(10), record(11))
    bench.results(bench.done(EvaluateBatch), "01")
    assert bench.done(Filtered) == Filtered(traced, NAME, 1, 2, 1, 10)


def test_three_pulls_that_raise_within_a_minute_are_too_many(bench: Bench) -> None:
    assert bench.policy.failure_window_ms == 60_000
    bench.serving()
    for passed_ms, ended in ((0, False), (30_000, False), (30_000, False), (29_999, True)):
        bench.now_ms += passed_ms
        bench.found(bench.pull(10), record(10))
        bench.results(bench.done(EvaluateBatch), "2", "raised", "oops")
        assert bench.done(Reply).code == Code.FILTER_FAILED
        assert bool(bench.all(EndWorker)) is ended
    change = bench.asked(ChangeFilter).request
    assert isinstance(change, ChangeFilter)
    assert (change.action, change.version) == ("quarantine", 1)
    assert "raised: oops" in change.reason
