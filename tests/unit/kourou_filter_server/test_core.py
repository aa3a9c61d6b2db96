from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from kourou.errors import Code
from kourou.protocol.bodies.filter_bodies import decode_filter_statistics
from kourou.protocol.messages.filter_server import GetFilterStatistics, NotifyFiltersChanged
from kourou.protocol.request import Answerer, RequestSpec
from kourou.protocol.table import REQUESTS
from kourou.runtime.core import Reply, Tick
from kourou_filter_server.core import FilterCore
from kourou_filter_server.interface import AskBroker, EvaluateBatch
from kourou_rigs.filter_bench import GROUP, NAME, WALL_MS, Bench, record
from kourou_rigs.hostile import hostile_body, hostile_request


def test_it_answers_what_the_table_says() -> None:
    wanted = {
        spec.header for spec in REQUESTS.values() if Answerer.FILTER_SERVER in spec.answered_by
    }
    assert {header for header in wanted if FilterCore.handles(header)} == wanted


def test_figures_of_all_or_of_one(bench: Bench) -> None:
    bench.serving()
    for group, name, count in (("", "", 1), (GROUP, NAME, 1), (GROUP, "x", 0), ("x", "", 0)):
        bench.turn(bench.received(GetFilterStatistics(consumer_group=group, name=name)))
        body = b"".join(map(bytes, bench.done(Reply).body))
        found = decode_filter_statistics(body)
        assert len(found) == count
    (figures,) = bench.core.figures()
    assert (figures.seen, figures.passed, figures.batches, figures.starts) == (1, 1, 1, 1)
    assert figures.bytes_in == figures.bytes_out == len(record(0))
    assert figures.running


@pytest.mark.fault
@pytest.mark.parametrize(
    "spec",
    [spec for spec in REQUESTS.values() if Answerer.FILTER_SERVER in spec.answered_by],
    ids=lambda spec: str(spec.name),
)
def test_no_request_breaks_a_filter_server(
    bench: Bench, spec: RequestSpec, rounds: Callable[[int], int]
) -> None:
    """An error that is not one of Kourou's own ends the process."""
    bench.serving()
    chance = Random(spec.code)
    for _ in range(rounds(1_000)):
        request, body = hostile_request(spec, chance), hostile_body(chance)
        bench.turn(bench.received(request, body, deadline_ms=5_000))
        for asked in bench.all(AskBroker):
            bench.answer(asked, code=Code.SYSTEM_ERROR, remark="hostile")
    bench.pass_time(60_000)
    assert bench.pull(10).request.queue_offset == 10


def test_news_may_come_as_a_request(bench: Bench) -> None:
    bench.turn(bench.received(NotifyFiltersChanged(filters_version=7)))
    assert not bench.effects
    bench.turn(bench.received(NotifyFiltersChanged(filters_version=8)))
    assert bench.done(AskBroker)


def test_filters_get_the_wall_clock(bench: Bench) -> None:
    bench.turn(Tick(WALL_MS, bench.now_ms))
    bench.serving()
    bench.now_ms += 70
    bench.found(bench.pull(10), record(10))
    assert bench.done(EvaluateBatch).wall_ms == WALL_MS + 70
