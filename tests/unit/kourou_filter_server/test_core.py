from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from kourou.errors import Code
from kourou.protocol.bodies.filter_bodies import decode_filter_statistics
from kourou.protocol.messages.filter_server import (
    CheckAccessResponse,
    GetFilterStatistics,
    NotifyFiltersChanged,
    RegisterMessageFilterClass,
    TryFilter,
)
from kourou.protocol.record.layout import masked_crc
from kourou.protocol.request import Answerer, RequestSpec
from kourou.protocol.table import REQUESTS
from kourou.runtime import Peer, Reply, Tick
from kourou_filter_server.context import ServerPolicy
from kourou_filter_server.core import FilterCore
from kourou_filter_server.interface import AskBroker, EvaluateBatch
from kourou_rigs.filter_bench import GROUP, NAME, TOPIC, WALL_MS, Bench, record
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


HERE, THERE = ("127.0.0.1", 1), ("192.0.2.7", 1)


@pytest.mark.parametrize(
    ("peer", "of_all", "taken"),
    [
        (Peer(1, "tcp", HERE), False, True),
        (Peer(1, "tcp", ("::ffff:127.0.0.1", 1)), False, True),
        (Peer(1, "tcp", THERE), False, False),
        (Peer(1, "tcp", ("", 1)), False, False),
        (Peer(1, "zmq", THERE), False, False),
        (Peer(1, "zmq", THERE, key="k" * 40), False, True),
        (Peer(1, "tcp", THERE), True, True),
    ],
)
def test_without_users_filters_come_from_this_machine_or_with_a_key(
    benches: Callable[..., Bench], peer: Peer, of_all: bool, taken: bool
) -> None:
    bench = benches(ServerPolicy(workers_max=2, filters_of_all=of_all))
    bench.peer = peer
    source = b"def match(message, context):\n    return True\n"
    upload = RegisterMessageFilterClass(
        consumer_group=GROUP, topic=TOPIC, class_name=NAME, class_crc=masked_crc(source)
    )
    trial = TryFilter(consumer_group=GROUP, name=NAME, topic=TOPIC, count=1)
    for request in (upload, trial):
        bench.turn(bench.received(request, source))
        assert bool(bench.all(AskBroker)) is taken
        refused = [one for one in bench.all(Reply) if one.code == Code.NO_PERMISSION]
        assert len(refused) == (not taken)
        assert all("filterUploadFromNetwork=true" in one.remark for one in refused)


@pytest.mark.fault
@pytest.mark.parametrize("undecided", [True, False])
@pytest.mark.parametrize(
    "spec",
    [spec for spec in REQUESTS.values() if Answerer.FILTER_SERVER in spec.answered_by],
    ids=lambda spec: str(spec.name),
)
def test_no_request_breaks_a_filter_server(
    bench: Bench, spec: RequestSpec, undecided: bool, rounds: Callable[[int], int]
) -> None:
    """An error that is not one of Kourou's own ends the process."""
    bench.access = lambda _: CheckAccessResponse(undecided=undecided)
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
