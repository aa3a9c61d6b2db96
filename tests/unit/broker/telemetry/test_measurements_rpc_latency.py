"""How long requests take, by request and response."""

from __future__ import annotations

import pytest

from kourou.broker.telemetry.measurements import PULLS, SENDS, RpcLatency, TimedReplyTo
from kourou.errors import Code
from kourou.protocol.messages.pulls import GetMaxOffset, PullMessage
from kourou.protocol.messages.sends import SendRecords
from kourou.runtime import Peer, Reply, ReplyTo
from kourou.telemetry.metric_table import RPC_BOUNDS_MS

PEER = Peer(1, "zmq", ("127.0.0.1", 5))
MS = 1_000_000


class Bench:
    """A latency under a clock that is told what time it is."""

    def __init__(self) -> None:
        self.now_ns = 1_000 * MS
        self.latency = RpcLatency(lambda: self.now_ns)

    def to(self, code: int, *, oneway: bool = False, peer: Peer = PEER) -> TimedReplyTo:
        return TimedReplyTo(peer, 1, oneway, b"", code, self.latency.arrived())

    def found(self, *names: str) -> dict[tuple[str, ...], tuple[list[int], float]]:
        rows = {}
        for labels, histogram in self.latency.samples({"cluster": "c"}):
            assert labels["cluster"] == "c"
            below = [count for _, count in histogram.buckets()]
            counts = [high - low for low, high in zip([0, *below], below, strict=False)]
            rows[tuple(labels[name] for name in names)] = (counts, histogram.total)
        return rows


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_answers_are_counted_by_request_response_and_time(bench: Bench) -> None:
    sent: list[Reply] = []
    watched = bench.latency.watching(sent.append)
    for waited_ns in (0, MS, MS + 1, 100 * MS, 5_000 * MS):
        reply = Reply(bench.to(SendRecords.code))
        bench.now_ns += waited_ns
        watched(reply)
    watched(Reply(bench.to(SendRecords.code), Code.SYSTEM_BUSY))
    watched(Reply(bench.to(GetMaxOffset.code)))
    assert len(sent) == 7
    found = bench.found("request_code", "response_code")
    assert set(found) == {
        ("send_records", "success"),
        ("send_records", "system_busy"),
        ("get_max_offset", "success"),
    }
    counts, total_ms = found["send_records", "success"]
    assert counts == [2, 1, 0, 0, 0, 1, 0, 0, 0, 1]
    assert len(counts) == len(RPC_BOUNDS_MS) + 1
    assert total_ms == pytest.approx(5_102.000001)


def test_long_polls_are_counted_apart_from_other_pulls(bench: Bench) -> None:
    held = bench.to(PullMessage.code)
    at_once = bench.to(PullMessage.code)
    send = bench.to(SendRecords.code)
    bench.latency.answered(at_once, Code.SUCCESS)
    bench.latency.handled()
    bench.now_ns += 7_000 * MS
    bench.latency.answered(held, Code.SUCCESS)
    bench.latency.answered(send, Code.SUCCESS)
    found = bench.found("request_code", "is_long_polling")
    assert set(found) == {
        ("pull_message", "true"),
        ("pull_message", "false"),
        ("send_records", "false"),
    }
    assert found["pull_message", "true"][1] == 7_000
    assert found["pull_message", "false"][1] == 0


def test_what_is_no_request_of_ours_shares_a_row(bench: Bench) -> None:
    for code in range(70_000, 70_100):
        bench.latency.answered(bench.to(code), Code.REQUEST_CODE_NOT_SUPPORTED)
    bench.latency.answered(bench.to(SendRecords.code), 29_999)
    found = bench.found("request_code", "response_code")
    assert found["unknown", "request_code_not_supported"][0][0] == 100
    assert found["send_records", "29999"][0][0] == 1
    assert len(found) == 2


def test_who_wants_no_answer_is_not_counted(bench: Bench) -> None:
    bench.latency.answered(bench.to(SendRecords.code, oneway=True), Code.SUCCESS)
    bench.latency.answered(ReplyTo(PEER, 1), Code.SUCCESS)
    assert not bench.found("request_code")


def test_the_remoting_protocol_has_rocketmqs_name(bench: Bench) -> None:
    tcp = Peer(2, "tcp", ("127.0.0.1", 6))
    bench.latency.answered(bench.to(SendRecords.code, peer=tcp), 0)
    assert set(bench.found("protocol_type")) == {("remoting",)}


def test_sends_and_pulls_are_counted_over_all_answers(bench: Bench) -> None:
    for request, waited_ns in (
        (SendRecords.code, MS),
        (SendRecords.code, 50 * MS),
        (GetMaxOffset.code, MS),
        (PullMessage.code, 2 * MS),
    ):
        to = bench.to(request)
        bench.now_ns += waited_ns
        bench.latency.answered(to, Code.SUCCESS)
    sends, pulls = bench.latency.counts(SENDS), bench.latency.counts(PULLS)
    assert len(sends) == len(pulls) == len(RPC_BOUNDS_MS) + 1
    assert (sum(sends), sum(pulls)) == (2, 1)
    assert sends[0] == 1
    held = bench.to(PullMessage.code)
    bench.latency.handled()
    bench.latency.answered(held, Code.SUCCESS)
    assert sum(bench.latency.counts(PULLS)) == 1  # what waited for messages took no time of ours
