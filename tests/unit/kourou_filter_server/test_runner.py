from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from kourou.errors import Code
from kourou.model.filter import FilterPolicy
from kourou.protocol.messages.filter_server import ChangeFilter, GetFilters
from kourou.protocol.messages.pulls import PullResponse
from kourou.runtime import Reply
from kourou_filter_server.context import ServerPolicy
from kourou_filter_server.discipline import VERSIONS_KNOWN_MAX, FailureCounts
from kourou_filter_server.interface import (
    LOST,
    AskBroker,
    BatchEvaluated,
    EndWorker,
    EvaluateBatch,
    StartWorker,
    WorkerEnded,
    WorkerReady,
)
from kourou_filter_server.runner import BATCH_US, SLOW_MESSAGES, Pace
from kourou_rigs.filter_bench import (
    GROUP,
    NAME,
    Bench,
    a_pull,
    judged_bytes,
    record,
    state,
    version,
)

Benches = Callable[..., Bench]


def died(bench: Bench, judge: EvaluateBatch, kind: str = "died") -> None:
    bench.turn(WorkerEnded(judge.worker, kind, "simulated"))


def failures(bench: Bench, number: int = 1) -> int:
    return bench.core.discipline.failure_count((GROUP, NAME), number)


def failure(bench: Bench) -> str | None:
    header = bench.done(Reply).header
    assert isinstance(header, PullResponse)
    return header.filter_failure


# -- workers --------------------------------------------------------------------------------------


@pytest.mark.feature("F240")
def test_the_first_pull_fetches_the_source_and_starts_a_worker(bench: Bench) -> None:
    bench.pull()
    asked = bench.asked(GetFilters)
    assert asked.request == GetFilters(consumer_group=GROUP, name=NAME, version=1, with_source=True)
    bench.tell_filters(asked)
    started = bench.done(StartWorker)
    assert (started.group, started.name, started.version) == (GROUP, NAME, 1)
    assert started.source == b"source 1"


def test_a_source_with_another_hash_is_not_run(bench: Bench) -> None:
    bench.pull()
    asked = bench.asked(GetFilters)
    bench.state = replace(state(1), versions=(version(1, "something else"),))
    bench.tell_filters(asked)
    assert not bench.all(StartWorker)
    bench.pass_time(bench.policy.start_again_ms)
    assert bench.asked(GetFilters)


def test_the_old_version_serves_until_the_new_one_is_ready(bench: Bench) -> None:
    old = bench.serving()
    bench.change(state(1, 2))
    bench.tell_filters(bench.asked(GetFilters))
    new = bench.done(StartWorker)
    assert new.version == 2
    bench.found(bench.pull(10), record(10))
    judge = bench.done(EvaluateBatch)
    assert judge.worker == old.worker
    bench.turn(WorkerReady(new.worker))
    assert not bench.all(EndWorker)  # not in the middle of a batch
    bench.results(judge, "1")
    assert bench.done(EndWorker).worker == old.worker
    bench.found(bench.pull(11), record(11))
    assert bench.done(EvaluateBatch).worker == new.worker


def test_an_answer_is_the_work_of_one_version(benches: Benches) -> None:
    bench = benches(ServerPolicy(batch_messages_max=1))
    bench.serving()
    bench.change(state(1, 2))
    bench.tell_filters(bench.asked(GetFilters))
    new = bench.done(StartWorker)
    bench.found(bench.pull(10), record(10), record(11))
    first = bench.done(EvaluateBatch)
    bench.turn(WorkerReady(new.worker))
    bench.results(first, "1")
    bench.results(bench.done(EvaluateBatch), "0")  # the first message again, by the new version
    bench.results(bench.done(EvaluateBatch), "1")
    reply = bench.done(Reply)
    assert judged_bytes(reply) == record(11)
    assert reply.header.filter_version == 2  # type: ignore[union-attr]  # it has one


def test_a_new_version_that_cannot_start_serves_nothing(bench: Bench) -> None:
    """The former one is not what somebody enabled."""
    old = bench.serving()
    bench.change(state(1, 2))
    bench.tell_filters(bench.asked(GetFilters))
    new = bench.done(StartWorker)
    bench.turn(WorkerEnded(new.worker, "setup", "SyntaxError"))
    assert bench.done(EndWorker).worker == old.worker
    assert failures(bench, 2) == 1
    bench.found(bench.pull(10), record(10))
    reply = bench.done(Reply)
    assert reply.code == Code.FILTER_FAILED
    assert "SyntaxError" in reply.remark


def test_a_disabled_version_serves_no_more_at_once(bench: Bench) -> None:
    old = bench.serving()
    bench.found(bench.pull(10), record(10))
    judge = bench.done(EvaluateBatch)
    bench.change(replace(bench.state, active=None))
    assert bench.done(EndWorker).worker == old.worker
    assert bench.done(Reply).code == Code.FILTER_FAILED
    bench.results(judge, "1")
    assert not bench.effects


# -- batches --------------------------------------------------------------------------------------


def test_waiting_pulls_of_a_topic_share_a_batch(bench: Bench) -> None:
    bench.serving()
    bench.found(bench.pull(10), record(10))
    first = bench.done(EvaluateBatch)
    bench.found(bench.pull(20), record(20), record(21))
    bench.found(bench.pull(30), record(30))
    bench.found(bench.pull(40, topic="another"), record(40))
    bench.results(first, "1")
    second = bench.done(EvaluateBatch)
    assert second.count == 3
    assert b"".join(second.records) == record(20) + record(21) + record(30)
    bench.results(second, "101")
    answers = [judged_bytes(each) for each in bench.all(Reply)]
    assert answers == [record(20), record(30)]
    assert bench.done(EvaluateBatch).topic == "another"


def test_long_runs_take_turns(benches: Benches) -> None:
    bench = benches(ServerPolicy(batch_messages_max=2))
    bench.serving()
    bench.found(bench.pull(10), *(record(each) for each in range(10, 15)))
    first = bench.done(EvaluateBatch)
    bench.found(bench.pull(20), record(20))
    judged = []
    bench.results(first, "11")
    while bench.all(EvaluateBatch):
        judge = bench.done(EvaluateBatch)
        judged.append(b"".join(judge.records))
        bench.results(judge, "1" * judge.count)
    assert judged == [record(20) + record(12), record(13) + record(14)]


def test_a_slow_filter_has_small_batches(bench: Bench) -> None:
    bench.serving()
    counts = []
    for begin, micros in ((100, 10), (300, 10_000_000), (500, 0)):
        bench.found(bench.pull(begin), *(record(begin + each) for each in range(100)))
        judge = bench.done(EvaluateBatch)
        counts.append(judge.count)
        results = b"\1" * judge.count
        bench.turn(BatchEvaluated(judge.worker, judge.batch, results, micros=micros))
    assert counts == [100, 100, 32]


def test_messages_behind_the_one_that_raised_are_judged_again(bench: Bench) -> None:
    bench.serving()
    bench.found(bench.pull(5), record(5))
    first = bench.done(EvaluateBatch)
    bench.found(bench.pull(10), record(10))
    bench.found(bench.pull(20), record(20))
    bench.results(first, "1")
    bench.results(bench.done(EvaluateBatch), "22", "raised", "oops")
    assert bench.done(Reply).code == Code.FILTER_FAILED
    again = bench.done(EvaluateBatch)
    assert b"".join(again.records) == record(20)


# -- culprits -------------------------------------------------------------------------------------


@pytest.mark.feature("F243")
@pytest.mark.parametrize("kind", ["died", "timeout"])
def test_after_a_death_each_message_is_tried_alone(bench: Bench, kind: str) -> None:
    bench.serving()
    bench.found(bench.pull(10), *(record(each) for each in range(10, 13)))
    died(bench, bench.done(EvaluateBatch), kind)
    assert failures(bench) == 1
    bench.worker()
    judge = bench.done(EvaluateBatch)
    assert judge.count == 1
    bench.results(judge, "1")
    died(bench, bench.done(EvaluateBatch), kind)  # the second message is it
    reply = bench.done(Reply)
    assert judged_bytes(reply) == record(10)
    assert failures(bench) == 1  # it was one and the same death


@pytest.mark.parametrize(("kind", "counted"), [("died", 0), ("timeout", 1)])
def test_a_death_that_no_message_repeats_is_forgiven_and_being_late_is_not(
    bench: Bench, kind: str, counted: int
) -> None:
    bench.serving()
    bench.found(bench.pull(10), record(10), record(11))
    died(bench, bench.done(EvaluateBatch), kind)
    assert failures(bench) == 1
    bench.worker()
    bench.results(bench.done(EvaluateBatch), "1")
    bench.results(bench.done(EvaluateBatch), "1")
    assert judged_bytes(bench.done(Reply)) == record(10) + record(11)
    assert failures(bench) == counted


def test_only_the_batch_that_it_ended_over_is_tried_alone(benches: Benches) -> None:
    bench = benches(ServerPolicy(batch_messages_max=2))
    bench.serving()
    bench.found(bench.pull(10), *(record(10 + each) for each in range(6)))
    died(bench, bench.done(EvaluateBatch))
    bench.worker()
    counts = []
    for results in ("1", "1", "11", "11"):
        judge = bench.done(EvaluateBatch)
        counts.append(judge.count)
        bench.results(judge, results)
        if len(counts) == 2:
            assert failures(bench) == 0  # no message of that batch was the culprit
    assert counts == [1, 1, 2, 2]
    assert bench.done(Reply).code == Code.SUCCESS


def test_whoever_went_with_the_zygote_did_nothing_wrong(bench: Bench) -> None:
    bench.serving()
    bench.found(bench.pull(10), record(10), record(11))
    died(bench, bench.done(EvaluateBatch), LOST)
    assert failures(bench) == 0
    bench.worker()
    bench.results(bench.done(EvaluateBatch), "11")
    assert judged_bytes(bench.done(Reply)) == record(10) + record(11)


@pytest.mark.parametrize(
    ("results", "kind"),
    [(b"", ""), (b"\1\1", ""), (b"\2", ""), (b"\1", "raised"), (b"\3", "raised")],
)
def test_lies_end_the_worker(bench: Bench, results: bytes, kind: str) -> None:
    bench.serving()
    bench.found(bench.pull(10), record(10))
    judge = bench.done(EvaluateBatch)
    bench.turn(BatchEvaluated(judge.worker, judge.batch, results, kind))
    assert bench.done(EndWorker).worker == judge.worker
    assert failure(bench) == "lied"
    assert failures(bench) == 1


@pytest.mark.feature("F243")
def test_three_failures_quarantine_a_version_until_another_version_is_enabled(bench: Bench) -> None:
    bench.serving()
    for number in range(3):
        upstream = bench.pull(10)
        if number:
            bench.worker()
        bench.found(upstream, record(10))
        died(bench, bench.done(EvaluateBatch))
        assert bench.all(Reply)[0].code == Code.FILTER_FAILED
    bench.no_answer(bench.asked(ChangeFilter))  # the broker does not know: it holds all the same
    bench.turn(bench.received(a_pull(10)))
    bench.tell_filters(bench.asked(GetFilters))
    assert failure(bench) == "quarantined"
    bench.pass_time(1_000)
    bench.state = replace(bench.state, quarantined={1: "it died"})
    bench.answer(bench.asked(ChangeFilter))
    bench.tell_filters(bench.asked(GetFilters))
    assert not bench.core.discipline.unrecorded
    bench.change(state(1, 2, quarantined={1: "it died"}))
    bench.pull(10)
    bench.tell_filters(bench.asked(GetFilters))
    assert bench.done(StartWorker).version == 2


def test_enabled_again_it_leaves_quarantine_with_no_failure(bench: Bench) -> None:
    bench.serving()
    bench.change(replace(bench.state, quarantined={1: "it died"}))
    bench.change(replace(bench.state, quarantined={}))
    bench.pull(10)
    bench.tell_filters(bench.asked(GetFilters)) if bench.all(AskBroker)[1:] else None
    assert bench.done(StartWorker).version == 1
    assert failures(bench) == 0


def test_memory_is_a_failure_and_a_message_that_cannot_be_judged(benches: Benches) -> None:
    bench = benches(policy=FilterPolicy.PASS)
    bench.serving()
    bench.found(bench.pull(10), record(10))
    bench.results(bench.done(EvaluateBatch), "2", "memory", "MemoryError")
    assert judged_bytes(bench.done(Reply)) == record(10)
    assert failures(bench) == 1


# -- discipline ------------------------------------------------------------------------------------


def test_versions_that_struck_are_not_kept_for_ever() -> None:
    counts = FailureCounts(3, 60_000)
    for number in range(VERSIONS_KNOWN_MAX + 1):
        counts.add(0, (("till", "late"), number))
    assert counts.count(0, (("till", "late"), 0)) == 0
    assert counts.count(0, (("till", "late"), 1)) == 1


# -- pace ------------------------------------------------------------------------------------------


MOST = 256


@pytest.mark.parametrize("seed", range(20))
def test_batches_stay_within_their_bounds_and_near_their_time(seed: int) -> None:
    """Whatever a message costs, and whatever a batch costs beside it; also when that changes."""
    chance = random.Random(seed)
    pace = Pace(MOST)
    assert pace.messages(1) == SLOW_MESSAGES, "of an unknown version little is risked"
    for _ in range(4):
        each_us, all_us = chance.choice([0.1, 5, 80, 400, 5_000]), chance.choice([0, 20, 3_000])
        for _ in range(40):
            count = pace.messages(1)
            assert SLOW_MESSAGES <= count <= MOST
            pace.evaluated(1, count, int(all_us + each_us * count))
        last = pace.messages(1)
        best = min(max(SLOW_MESSAGES, (BATCH_US - all_us) / each_us), MOST)
        assert last == pytest.approx(best, rel=0.2)
        pace.evaluated(1, 0, 5_000)
        assert pace.messages(1) == last, "a batch without messages says nothing"
    assert pace.messages(2) == SLOW_MESSAGES
