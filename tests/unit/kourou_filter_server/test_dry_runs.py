from __future__ import annotations

from typing import Any

import pytest

from kourou.errors import Code
from kourou.model.limits import FILTER_CHECKED_BYTES_MAX, FILTER_SOURCE_BYTES_MAX
from kourou.model.topic import MessageQueue
from kourou.protocol.bodies.filter_bodies import FilterTrial, decode_filter_trial
from kourou.protocol.bodies.statistics_bodies import TopicOffset, encode_topic_stats
from kourou.protocol.messages.broker_admin import GetTopicStatsInfo
from kourou.protocol.messages.filter_server import GetFilters, TryFilter
from kourou.protocol.messages.pulls import PullMessage
from kourou.runtime import Disconnected, Reply
from kourou_filter_server.dry_runs import shared
from kourou_filter_server.interface import (
    EndWorker,
    EvaluateBatch,
    StartWorker,
    WorkerEnded,
    WorkerReady,
)
from kourou_rigs.filter_bench import GROUP, NAME, TOPIC, Bench, place, record

SOURCE = b"def match(message, context):\n    return True\n"


def try_it(bench: Bench, body: bytes = SOURCE, **fields: Any) -> None:
    request = TryFilter(
        **{"consumer_group": GROUP, "name": NAME, "topic": TOPIC, "count": 3, **fields}
    )
    bench.turn(bench.received(request, body))


def sampled(bench: Bench, count: int = 3) -> None:
    """The topic has ten messages in one queue; its last ones are asked for."""
    table = {MessageQueue(TOPIC, "broker-a", 0): TopicOffset(max_offset=10, min_offset=0)}
    bench.answer(bench.asked(GetTopicStatsInfo), body=encode_topic_stats(table))
    asked = bench.asked(PullMessage)
    request = asked.request
    assert isinstance(request, PullMessage)
    assert (request.consumer_group, request.queue_offset) == ("FILTERSRV_CONSUMER", 10 - count)
    assert not request.sys_flag & 3  # it commits nothing and waits for nothing
    records = b"".join(record(each) for each in range(10 - count, 10))
    bench.answer(asked, place(10, 10), records)


def trial_of(reply: Reply) -> FilterTrial:
    assert reply.code == Code.SUCCESS, reply.remark
    return decode_filter_trial(b"".join(map(bytes, reply.body)))


@pytest.mark.feature("F242")
def test_a_dry_run_says_what_becomes_of_each_message(bench: Bench) -> None:
    try_it(bench)
    sampled(bench)
    started = bench.done(StartWorker)
    assert started.source == SOURCE
    bench.turn(WorkerReady(started.worker, 4_000))
    for verdict, kind in (("1", ""), ("0", ""), ("2", "raised")):
        judge = bench.done(EvaluateBatch)
        assert judge.count == 1
        bench.results(judge, verdict, kind, "oops" if kind else "")
    assert bench.done(EndWorker).worker == started.worker
    trial = trial_of(bench.done(Reply))
    assert [one.passed for one in trial.messages] == [True, False, None]
    assert trial.messages[2].reason == "raised: oops"
    assert (trial.seen, trial.passed, trial.failed) == (3, 1, 1)
    assert (trial.micros, trial.start_micros, trial.failure) == (30, 4_000, "")
    assert not bench.core.figures()  # it counts for nobody


def test_without_a_source_the_stored_one_is_tried(bench: Bench) -> None:
    try_it(bench, b"")
    bench.tell_filters(bench.asked(GetFilters))
    asked = bench.asked(GetFilters)  # now it is known which one is the newest
    assert asked.request == GetFilters(consumer_group=GROUP, name=NAME, version=1, with_source=True)
    bench.tell_filters(asked)
    sampled(bench)
    assert bench.done(StartWorker).source == b"source 1"
    try_it(bench, b"", version=9)
    bench.tell_filters(bench.asked(GetFilters))
    assert bench.done(Reply).code == Code.QUERY_NOT_FOUND


def test_a_source_that_an_upload_would_refuse_is_refused(bench: Bench) -> None:
    try_it(bench, b"import os\n" + SOURCE)
    assert bench.done(Reply).code == Code.SYSTEM_ERROR
    try_it(bench, b"\xff")
    assert "UTF-8" in bench.done(Reply).remark


def test_many_large_sources_are_not_checked_at_once(bench: Bench) -> None:
    """Half a second of work each, in which nobody's pull is answered."""
    source = b"import os\n" + b"#" * (FILTER_SOURCE_BYTES_MAX - 10)
    for _ in range(FILTER_CHECKED_BYTES_MAX // len(source)):
        try_it(bench, source)
        assert bench.done(Reply).code == Code.SYSTEM_ERROR
    try_it(bench, source)
    assert bench.done(Reply).code == Code.SYSTEM_BUSY
    bench.pass_time(10_000)
    try_it(bench, source)
    assert bench.done(Reply).code == Code.SYSTEM_ERROR


def test_a_worker_that_dies_costs_a_message_and_a_worker(bench: Bench) -> None:
    try_it(bench, count=6)
    sampled(bench, 6)
    for _ in range(4):
        started = bench.done(StartWorker)
        bench.turn(WorkerReady(started.worker))
        assert bench.done(EvaluateBatch)
        bench.turn(WorkerEnded(started.worker, "died", "SIGSEGV"))
    trial = trial_of(bench.done(Reply))
    assert (trial.seen, trial.failed, trial.failure) == (4, 4, "died")


def test_a_filter_that_cannot_be_set_up_is_reported(bench: Bench) -> None:
    try_it(bench)
    sampled(bench)
    bench.turn(WorkerEnded(bench.done(StartWorker).worker, "setup", "NameError: x"))
    trial = trial_of(bench.done(Reply))
    assert (trial.seen, trial.failure, trial.reason) == (0, "setup", "NameError: x")


def test_a_dry_run_is_over_after_its_time(bench: Bench) -> None:
    try_it(bench)
    sampled(bench)
    started = bench.done(StartWorker)
    bench.turn(WorkerReady(started.worker))
    bench.results(bench.done(EvaluateBatch), "1")
    bench.pass_time(bench.policy.trial_ms_max)
    assert bench.done(EndWorker).worker == started.worker
    trial = trial_of(bench.done(Reply))
    assert (trial.seen, trial.failure) == (1, "timeout")
    assert not len(bench.core.dry_runs)


def test_two_at_a_time(bench: Bench) -> None:
    for _ in range(bench.policy.trials_max):
        try_it(bench)
    try_it(bench)
    assert bench.done(Reply).code == Code.SYSTEM_BUSY


def test_the_brokers_refusal_comes_back(bench: Bench) -> None:
    try_it(bench)
    asked = bench.asked(GetTopicStatsInfo)
    bench.answer(asked, code=Code.TOPIC_NOT_EXIST, remark="no such topic")
    assert bench.done(Reply).code == Code.TOPIC_NOT_EXIST
    try_it(bench)
    bench.no_answer(bench.asked(GetTopicStatsInfo))
    assert bench.done(Reply).code == Code.SERVICE_NOT_AVAILABLE


def test_nobody_goes_on_for_a_peer_that_is_gone(bench: Bench) -> None:
    try_it(bench)
    sampled(bench)
    started = bench.done(StartWorker)
    bench.turn(Disconnected(bench.peer))
    assert bench.done(EndWorker).worker == started.worker
    assert not len(bench.core.dry_runs)


# -- sample ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lengths", "count", "shares"),
    [
        ({0: 100, 1: 100}, 10, {0: 5, 1: 5}),
        ({0: 100, 1: 2}, 10, {0: 8, 1: 2}),
        ({0: 1, 1: 2}, 10, {0: 1, 1: 2}),
        ({0: 5, 1: 5, 2: 5}, 1, {0: 1, 1: 0, 2: 0}),
        ({}, 10, {}),
        ({0: 0}, 10, {0: 0}),
    ],
)
def test_queues_share_the_sample(
    lengths: dict[int, int], count: int, shares: dict[int, int]
) -> None:
    assert shared(lengths, count) == shares
