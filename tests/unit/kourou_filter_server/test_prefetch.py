from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from kourou.errors import Code
from kourou.model.filter import FilterKey, FilterPolicy
from kourou.protocol.messages.pulls import PullFlag, PullMessage, PullResponse, UpdateConsumerOffset
from kourou.runtime import Disconnected, Peer, Reply
from kourou_filter_server.catalogue import FilterStatus
from kourou_filter_server.context import CoreContext, ServerPolicy, VersionCounts
from kourou_filter_server.interface import AskBroker, EvaluateBatch, SendToBroker
from kourou_filter_server.jobs import FilterJob
from kourou_filter_server.prefetch import AHEAD_US, KEEP_MS, Prefetch, Queue, Remainder
from kourou_filter_server.pulls import Pull
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
KEY: FilterKey = (GROUP, NAME)
QUEUE: Queue = (KEY, TOPIC, 0)
COMMIT = int(PullFlag.CLASS_FILTER | PullFlag.SUBSCRIPTION | PullFlag.COMMIT_OFFSET)


def a_job(records: list[bytes], results: bytes) -> FilterJob:
    owner = Pull.__new__(Pull)  # nobody asks it anything here
    job = FilterJob(owner, KEY, TOPIC, b"".join(records))
    job.results += results
    job.version = 1
    return job


def a_rest(records: list[bytes], results: bytes, behind: int = 1_000) -> Remainder:
    peer = Peer(1, "zmq", ("127.0.0.1", 1))
    status = FilterStatus(state().versions[0], FilterPolicy.HOLD)
    job = a_job(records, results)
    return Remainder(job, len(results), behind, place(behind), status, peer, found_ms=0)


# -- parts of a rest ------------------------------------------------------------------------------


def test_parts_are_what_passes_within_the_limits_and_together_all_of_it() -> None:
    chance = random.Random(1)
    for _ in range(300):
        records = [record(each, 93 + chance.randrange(100)) for each in range(40)]
        results = bytes(chance.random() < 0.5 for _ in range(chance.randrange(1, 41)))
        remainder = a_rest(records, results)
        wanted = [one for one, yes in zip(records, results, strict=False) if yes]
        got = b""
        while remainder.at < remainder.end:
            count_max, bytes_max = chance.randrange(1, 12), chance.randrange(1, 1_500)
            number, passed, body = remainder.part(count_max, bytes_max)
            assert remainder.at < number <= remainder.end
            assert passed <= count_max
            assert len(body) <= bytes_max or passed == 1
            assert passed == results.count(1, remainder.at, number)
            if (
                number < remainder.end
            ):  # as much as fits, and all that is denied before the next one
                assert results[number] == 1
                assert passed == count_max or len(body) + len(records[number]) > bytes_max
            got += bytes(body)
            remainder.go_to(number)
            assert remainder.offset == (number if number < remainder.end else 1_000)
        assert got == b"".join(wanted)


def test_most_of_a_run_is_not_copied_and_little_keeps_nothing_alive() -> None:
    remainder = a_rest([record(each) for each in range(10)], b"\1" * 10)
    whole = remainder.part(32, 1 << 20)[2]
    assert isinstance(whole, memoryview)
    assert whole.obj is remainder.job.run.obj
    assert isinstance(remainder.part(1, 1 << 20)[2], bytes)


# -- how far ahead --------------------------------------------------------------------------------


def prefetch(**policy: int) -> Prefetch:
    return Prefetch(CoreContext(), ServerPolicy(**policy))


def test_reach_doubles_while_all_is_used_and_falls_back_to_what_was() -> None:
    cheap = VersionCounts(seen=1_000, micros=1_000, bytes_in=100_000)
    known = prefetch(ahead_messages=1_000)
    assert known.reach(QUEUE, 32, VersionCounts()) == 32
    assert known.reach(QUEUE, 32, cheap) == 32
    for expected in (64, 128, 256, 512, 1_000, 1_000):
        known.used_up(QUEUE, known.reach(QUEUE, 32, cheap))
        assert known.reach(QUEUE, 32, cheap) == expected
    remainder = a_rest([record(each) for each in range(100)], b"\1" * 100)
    remainder.go_to(70)
    known.keep(QUEUE, remainder)
    known.clear()
    assert known.reach(QUEUE, 32, cheap) == 70
    assert known.reach(QUEUE, 5_000, cheap) == 5_000  # never less than was asked for


def test_reach_is_bounded_by_a_filters_time_and_by_bytes() -> None:
    known = prefetch(ahead_messages=10_000, ahead_bytes=1 << 20)
    for _ in range(20):
        known.used_up(QUEUE, 10_000)
    assert (
        known.reach(QUEUE, 1, VersionCounts(seen=10, micros=1_000, bytes_in=10)) == AHEAD_US // 100
    )
    assert known.reach(QUEUE, 1, VersionCounts(seen=4, micros=4, bytes_in=4 << 12)) == 256


def test_what_is_kept_is_bounded_and_the_longest_unasked_goes_first() -> None:
    known = prefetch(ahead_kept_bytes=3_000)
    queues: list[Queue] = [(KEY, TOPIC, number) for number in range(4)]
    for queue in queues:
        remainder = a_rest([record(each, 100) for each in range(10)], b"\1" * 10)
        remainder.go_to(1)
        known.keep(queue, remainder)
    status = FilterStatus(state().versions[0], FilterPolicy.HOLD)
    assert (len(known), known.kept_bytes) == (3, 3_000)
    assert known.take(queues[0], 1, status) is None
    assert known.take(queues[1], 1, status) is not None
    assert known.kept_bytes == 2_000


# -- in pulls -------------------------------------------------------------------------------------


def stocked(bench: Bench, count: int = 4, results: str = "11011011", **pull: Any) -> Reply:
    """The answer to a pull of `count` for which the broker had more, of which all is judged."""
    bench.serving()
    bench.core.pulls.prefetch.used_up(QUEUE, len(results))
    upstream = bench.pull(10, max_msg_nums=count, **pull)
    assert isinstance(upstream.request, PullMessage)
    assert upstream.request.max_msg_nums == 2 * len(results)
    bench.found(upstream, *(record(10 + each) for each in range(len(results))))
    bench.results(bench.done(EvaluateBatch), results)
    return bench.done(Reply)


def header_of(reply: Reply) -> PullResponse:
    assert isinstance(reply.header, PullResponse)
    return reply.header


def next_pull(bench: Bench, offset: int, **pull: Any) -> Reply | None:
    """The answer to a further pull, if there is one at once."""
    bench.turn(bench.received(a_pull(offset, **{"max_msg_nums": 4, **pull})))
    replies = bench.all(Reply)
    if not replies:
        assert bench.asked(PullMessage)
        return None
    assert not [one for one in bench.all(AskBroker) if isinstance(one.request, PullMessage)]
    return replies[0]


def test_what_is_judged_beyond_a_pull_answers_the_next_one_at_once(bench: Bench) -> None:
    first = stocked(bench, count=2)
    assert judged_bytes(first) == record(10) + record(11)
    assert header_of(first).next_begin_offset == 13  # what is denied before it is judged, too
    second = next_pull(bench, 13)
    assert second is not None
    assert judged_bytes(second) == record(13) + record(14) + record(16) + record(17)
    assert header_of(second) == replace_place(18)
    assert (second.code, second.remark) == (Code.SUCCESS, "FOUND")
    assert next_pull(bench, 18) is None


def replace_place(next_offset: int) -> PullResponse:
    return PullResponse(
        suggest_which_broker_id=1,
        next_begin_offset=next_offset,
        min_offset=0,
        max_offset=100,
        filter_version=1,
    )


def test_the_bytes_that_a_consumer_asked_for_are_the_limit(bench: Bench) -> None:
    first = stocked(bench, max_msg_bytes=3 * len(record(0)))
    assert judged_bytes(first) == record(10) + record(11) + record(13)
    second = next_pull(bench, 14, max_msg_bytes=1)
    assert second is not None
    assert judged_bytes(second) == record(14)


def test_a_consumer_without_a_budget_of_its_own_has_the_brokers_limits(bench: Bench) -> None:
    bench.serving()
    bench.core.pulls.prefetch.used_up(QUEUE, 100)
    request = bench.pull(10, max_msg_nums=4, max_msg_bytes=None).request
    assert isinstance(request, PullMessage)
    assert (request.max_msg_nums, request.max_msg_bytes) == (4, None)


def test_another_offset_is_asked_of_the_broker(bench: Bench) -> None:
    stocked(bench)
    assert next_pull(bench, 12) is None
    assert len(bench.core.pulls.prefetch) == 0


def drop_by_version(bench: Bench) -> None:
    bench.change(state(1, 2))


def drop_by_disabling(bench: Bench) -> None:
    bench.change(state(1, active=None))
    bench.change(state(1))


def drop_by_policy(bench: Bench) -> None:
    assert bench.state is not None
    bench.change(replace(bench.state, policy=FilterPolicy.PASS))


def drop_by_time(bench: Bench) -> None:
    bench.pass_time(KEEP_MS)


def drop_by_hanging_up(bench: Bench) -> None:
    bench.turn(Disconnected(bench.peer))


def drop_by_losing_the_broker(bench: Bench) -> None:
    bench.registered()  # over a new connection


@pytest.mark.parametrize(
    "drop",
    [
        drop_by_version,
        drop_by_disabling,
        drop_by_policy,
        drop_by_time,
        drop_by_hanging_up,
        drop_by_losing_the_broker,
    ],
)
def test_what_was_judged_ahead_is_dropped(bench: Bench, drop: Callable[[Bench], None]) -> None:
    stocked(bench)
    assert len(bench.core.pulls.prefetch) == 1
    drop(bench)
    assert len(bench.core.pulls.prefetch) == 0
    assert bench.core.pulls.prefetch.kept_bytes == 0
    assert next_pull(bench, 16) is None


def test_what_is_too_old_is_not_used_between_two_ticks(bench: Bench) -> None:
    stocked(bench)
    bench.now_ms += KEEP_MS
    assert next_pull(bench, 16) is None


def test_a_quarantine_holds_what_was_judged_ahead_before_it(bench: Bench) -> None:
    stocked(bench)
    bench.change(state(1, quarantined={1: "it lied"}))
    bench.turn(bench.received(a_pull(16)))
    assert not [reply for reply in bench.all(Reply) if reply.code == Code.SUCCESS]


def test_a_new_consumer_that_asks_there_gets_it_and_its_end_counts(bench: Bench) -> None:
    stocked(bench, count=2)
    before, bench.peer = bench.peer, Peer(2, "zmq", ("127.0.0.1", 40_001))
    assert next_pull(bench, 13, max_msg_nums=1) is not None
    bench.turn(Disconnected(before))
    assert next_pull(bench, 14, max_msg_nums=1) is not None
    bench.turn(Disconnected(bench.peer))
    assert len(bench.core.pulls.prefetch) == 0


def test_an_offset_committed_by_a_pull_that_the_broker_does_not_see_reaches_it(
    bench: Bench,
) -> None:
    stocked(bench, count=1, sys_flag=COMMIT, commit_offset=10)
    commits = []
    for offset, commit in ((11, 10), (13, 11), (14, 11), (16, 14)):
        assert next_pull(bench, offset, max_msg_nums=1, sys_flag=COMMIT, commit_offset=commit)
        commits.append([told.request for told in bench.all(SendToBroker)])

    def told(commit: int) -> UpdateConsumerOffset:
        return UpdateConsumerOffset(
            consumer_group=GROUP, topic=TOPIC, queue_id=0, commit_offset=commit
        )

    assert commits == [[], [told(11)], [], [told(14)]]


def test_what_goes_through_unfiltered_is_not_kept(benches: Benches) -> None:
    bench = benches(policy=FilterPolicy.PASS)
    bench.serving()
    bench.core.pulls.prefetch.used_up(QUEUE, 32)
    bench.found(bench.pull(10, max_msg_nums=1), *(record(10 + each) for each in range(4)))
    bench.results(bench.done(EvaluateBatch), "1222", "raised", "KeyError")
    bench.results(bench.done(EvaluateBatch), "11")
    assert header_of(bench.done(Reply)).next_begin_offset == 11
    assert len(bench.core.pulls.prefetch) == 0


def test_what_is_before_a_message_at_fault_is_kept(bench: Bench) -> None:
    bench.serving()
    bench.core.pulls.prefetch.used_up(QUEUE, 32)
    bench.found(bench.pull(10, max_msg_nums=1), *(record(10 + each) for each in range(4)))
    bench.results(bench.done(EvaluateBatch), "1122", "raised", "KeyError")
    assert header_of(bench.done(Reply)).next_begin_offset == 11
    second = next_pull(bench, 11)
    assert second is not None
    assert header_of(second).next_begin_offset == 12
    assert next_pull(bench, 12) is None


def test_only_the_consumers_own_unreadable_messages_are_reported(bench: Bench) -> None:
    bench.serving()
    bench.core.pulls.prefetch.used_up(QUEUE, 32)
    asked = bench.pull(10, max_msg_nums=2, sys_flag=COMMIT, commit_offset=10)
    bench.answer(asked, place(14), record(10) + record(13), remark="unreadable offsets: 11 12")
    bench.results(bench.done(EvaluateBatch), "11")
    assert not bench.all(Reply)
    again = bench.asked(PullMessage)
    assert isinstance(again.request, PullMessage)
    assert (again.request.queue_offset, again.request.max_msg_nums) == (10, 2)
    assert not again.request.sys_flag & PullFlag.COMMIT_OFFSET
    bench.answer(again, place(12), record(10), remark="unreadable offsets: 11")
    bench.results(bench.done(EvaluateBatch), "1")
    reply = bench.done(Reply)
    assert (reply.remark, header_of(reply).next_begin_offset) == ("unreadable offsets: 11", 12)
