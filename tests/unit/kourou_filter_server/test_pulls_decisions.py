"""Pulls under way while somebody decides about their filter: never unfiltered, never lost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from kourou.errors import Code
from kourou.model.filter import FilterPolicy, FilterState
from kourou.protocol.messages.filter_server import GetFilters, RecordFilterSkip
from kourou.protocol.messages.pulls import PullMessage, PullResponse
from kourou.runtime import Reply
from kourou_filter_server.context import ServerPolicy
from kourou_filter_server.interface import EvaluateBatch
from kourou_rigs.filter_bench import GROUP, NAME, Bench, a_pull, judged_bytes, record

pytestmark = pytest.mark.feature("F241")

Benches = Callable[..., Bench]


def place(reply: Reply) -> PullResponse:
    assert isinstance(reply.header, PullResponse)
    return reply.header


def off(state: FilterState) -> FilterState:
    return replace(state, active=None)


def gone(_: FilterState) -> None:
    return None


@pytest.mark.parametrize("decided", [off, gone])
def test_what_the_broker_sends_after_the_filter_was_switched_off_is_held(
    benches: Benches, decided: Callable[[FilterState], FilterState | None]
) -> None:
    """Under `pass`, too: somebody wanted it not to run, and not that everything goes through."""
    bench = benches(policy=FilterPolicy.PASS)
    bench.serving()
    upstream = bench.pull(10, 15_000)
    bench.change(decided(bench.state))
    bench.found(upstream, record(10), record(11))
    failed = bench.done(Reply)
    assert failed.code == Code.FILTER_FAILED
    assert place(failed).next_begin_offset == 10
    assert not failed.body


def test_what_is_half_judged_when_the_filter_is_switched_off_is_cut_there(benches: Benches) -> None:
    bench = benches(ServerPolicy(batch_messages_max=2), FilterPolicy.PASS)
    bench.serving()
    bench.found(bench.pull(10), *(record(each) for each in range(10, 14)))
    bench.results(bench.done(EvaluateBatch), "01")
    assert bench.done(EvaluateBatch)
    bench.change(off(bench.state))
    reply = bench.done(Reply)
    assert judged_bytes(reply) == record(11)
    assert place(reply).next_begin_offset == 12


def test_at_the_deadline_nothing_is_passed_over_that_is_not_recorded(benches: Benches) -> None:
    bench = benches(ServerPolicy(batch_messages_max=2), FilterPolicy.SKIP)
    bench.serving()
    bench.found(bench.pull(10, deadline_ms=2_000), *(record(each) for each in range(10, 14)))
    bench.results(bench.done(EvaluateBatch), "12", "raised", "oops")
    bench.pass_time(1_700)
    reply = bench.done(Reply)
    assert judged_bytes(reply) == record(10)
    assert place(reply).next_begin_offset == 11


def test_at_the_deadline_a_record_under_way_is_not_taken_for_made(benches: Benches) -> None:
    bench = benches(policy=FilterPolicy.SKIP)
    bench.serving()
    bench.found(bench.pull(10, deadline_ms=2_000), record(10), record(11), record(12))
    bench.results(bench.done(EvaluateBatch), "122", "raised", "oops")
    bench.results(bench.done(EvaluateBatch), "1")
    asked = bench.asked(RecordFilterSkip)
    bench.pass_time(1_700)
    assert place(bench.done(Reply)).next_begin_offset == 11
    bench.answer(asked)
    assert not bench.all(Reply)


def test_in_quarantine_nothing_leaves_that_was_judged_ahead(bench: Bench) -> None:
    """Nor in the moment before the broker, or the next tick, says so."""
    bench.serving()
    bench.found(bench.pull(10, max_msg_nums=1), record(10), record(11), record(12))
    bench.results(bench.done(EvaluateBatch), "111")
    assert judged_bytes(bench.done(Reply)) == record(10)
    for _ in range(3):
        bench.core.discipline.count_failure((GROUP, NAME), 1, "timeout", "too slow")
    bench.turn(bench.received(a_pull(11)))
    assert not bench.all(Reply)
    bench.tell_filters(bench.asked(GetFilters))
    assert place(bench.done(Reply)).filter_failure == "quarantined"


def test_progress_is_reported_before_the_failure_behind_it(bench: Bench) -> None:
    """Else the pull that fails would begin, and judge, at the same place for ever."""
    bench.serving()
    bench.found(bench.pull(10, 15_000), record(10), record(11))
    bench.results(bench.done(EvaluateBatch), "00")
    bench.found(bench.asked(PullMessage), record(12))
    bench.results(bench.done(EvaluateBatch), "2", "raised", "oops")
    reply = bench.done(Reply)
    assert reply.code == Code.PULL_RETRY_IMMEDIATELY
    assert place(reply).next_begin_offset == 12


def test_a_number_that_is_given_twice_is_one_pull(bench: Bench) -> None:
    bench.serving()
    received = bench.received(a_pull(10))
    bench.turn(received)
    first = bench.asked(PullMessage)
    bench.turn(received)
    second = bench.asked(PullMessage)
    assert len(bench.core.pulls) == 1
    bench.found(first, record(10))
    assert not bench.effects
    bench.found(second, record(10))
    bench.results(bench.done(EvaluateBatch), "1")
    assert bench.done(Reply).code == Code.SUCCESS
    assert not bench.core.pulls
