"""One connection to each server, opened when it is needed."""

from __future__ import annotations

import asyncio
import random

import pytest

from kourou.client.session import connections as connections_module
from kourou.client.session import io_thread
from kourou.client.session.connections import (
    HURRIED_MS,
    Connections,
    Pauses,
    body_of,
    header_of,
    nobody_leads,
    was_lost,
    zmq_dial,
)
from kourou.clock import SystemClock
from kourou.errors import (
    Code,
    DecodeError,
    DiskFull,
    NoPermission,
    NotLeader,
    Rejected,
    Throttled,
    TimedOut,
    Unavailable,
    UnknownOutcome,
    error_from_code,
)
from kourou.protocol.messages.pulls import GetMaxOffset, GetMaxOffsetResponse
from kourou.protocol.messages.quotas import FlowControlled
from kourou.protocol.request import Request
from kourou_rigs.wire_faults import Answer, always

ASK = GetMaxOffset(topic="T", queue_id=0)


@pytest.fixture
def heard():
    return []


@pytest.fixture
async def connections(cluster, heard):
    connections = Connections(cluster.dial, lambda address, frame: heard.append((address, frame)))
    yield connections
    connections.close()


@pytest.mark.feature("F041")
async def test_one_connection_a_server(cluster, broker, connections):
    assert connections.to(broker.address) is connections.to(broker.address)
    assert connections.to("other:20911") is not connections.to(broker.address)
    assert len(cluster.wires) == 2


async def test_error_codes_are_raised_as_their_class(broker, connections):
    reply = await connections.ask(broker.address, ASK, timeout_ms=100)
    assert header_of(reply, GetMaxOffsetResponse).offset == 0
    broker.faults[Request] = always(Answer(Code.NO_PERMISSION, remark="not you"))
    with pytest.raises(NoPermission, match="not you"):
        await connections.ask(broker.address, ASK, timeout_ms=100)
    wanted = {int(Code.NO_PERMISSION)}
    reply = await connections.ask(broker.address, ASK, timeout_ms=100, also=wanted)
    assert (reply.code, reply.remark) == (Code.NO_PERMISSION, "not you")
    with pytest.raises(DecodeError, match="GetMaxOffsetResponse"):
        header_of(reply, GetMaxOffsetResponse)
    assert bytes(body_of(reply)) == b""


async def test_a_request_over_a_quota_is_repeated_as_long_as_there_is_time(broker, connections):
    over = Answer(Code.FLOW_CONTROL, FlowControlled(retry_after_ms=10), remark="over")
    broker.faults[Request] = [over] * 3
    reply = await connections.ask(broker.address, ASK, timeout_ms=2_000)
    assert (reply.code, len(broker.seen)) == (Code.SUCCESS, 4)
    over = Answer(Code.FLOW_CONTROL, FlowControlled(retry_after_ms=500), remark="over")
    broker.faults[Request] = always(over)
    with pytest.raises(Throttled, match="over") as over:
        await connections.ask(broker.address, ASK, timeout_ms=400)
    assert over.value.retry_after_ms == 500


async def test_a_hurried_question_goes_only_where_a_connection_stands(cluster, broker, connections):
    with pytest.raises(Unavailable, match="not connected to"):
        await connections.ask(broker.address, ASK, timeout_ms=100, hurried=True)
    assert cluster.wires == [], "none is opened for it"
    wire = connections.to(broker.address)
    await connections.ask(broker.address, ASK, timeout_ms=60_000, hurried=True)
    await connections.ask(broker.address, ASK, timeout_ms=100, hurried=True)
    assert [left for _, left in wire.deadlines] == [HURRIED_MS, 100]
    cluster.down.add(broker.address)
    with pytest.raises(Unavailable, match="not connected to"):
        await connections.ask(broker.address, ASK, timeout_ms=100, hurried=True)
    assert len(wire.deadlines) == 2, "it is not even asked"


async def test_servers_without_a_route_are_dropped_but_never_name_servers(
    cluster, broker, connections
):
    namesrv = connections.to_name_server("127.0.0.1:9876")
    kept, dropped = connections.to(broker.address), connections.to("gone:20911")
    connections.retain_routes({broker.address})
    assert (namesrv.closed, kept.closed, dropped.closed) == (False, False, True)
    assert connections.to("gone:20911") is not dropped


async def test_a_connection_is_lost_only_if_it_stood(cluster, broker, connections):
    wire = connections.to(broker.address)
    cluster.down.add(broker.address)
    assert not connections.lost(broker.address)
    wire.on_connected()
    assert connections.lost(broker.address)
    cluster.down.clear()
    assert not connections.lost(broker.address)
    assert not connections.lost("never dialled:20911")


async def test_after_closing_nothing_is_opened(broker, connections):
    wire = connections.to(broker.address)
    connections.close()
    assert wire.closed
    with pytest.raises(Unavailable, match="closing"):
        connections.to(broker.address)


async def test_only_on_an_applications_own_loop_replies_are_looked_for(monkeypatch):
    """A thread that looks would take the interpreter from those who wait for it."""
    dialled = []
    monkeypatch.setattr(
        connections_module, "ZmqConnection", lambda *_, timeouts, **__: dialled.append(timeouts)
    )
    dial = zmq_dial(SystemClock(), busy_poll_us=123)

    async def there():
        dial("127.0.0.1:1", print)

    await there()
    thread = io_thread.acquire("busy poll")
    try:
        await asyncio.wrap_future(thread.submit(there()))
    finally:
        io_thread.release(thread)
    assert [one.busy_poll_us for one in dialled] == [123, 0]


# -- pauses between looks for a leader, and what makes a client look -------------------------------


def test_pauses_grow_to_a_bound_and_are_half_chance():
    pauses = Pauses(random.Random(1), first_ms=20, longest_ms=100)
    spans = [20, 40, 80, 100, 100]
    for span_ms in spans:
        assert span_ms // 2 <= pauses.next_ms() <= span_ms


def test_clients_do_not_pause_alike():
    firsts = {Pauses(random.Random(seed), first_ms=1_000).next_ms() for seed in range(20)}
    assert len(firsts) > 15


def test_former_pauses_count():
    pauses = Pauses(random.Random(1), first_ms=20, longest_ms=10_000)
    pauses.grow(4)
    assert 160 <= pauses.next_ms() <= 320
    pauses.grow(10_000)
    assert 5_000 <= pauses.next_ms() <= 10_000


@pytest.mark.parametrize(
    ("error", "spare", "lost"),
    [
        (NotLeader("a follower"), True, False),
        (Unavailable("cannot reach it"), True, False),
        (error_from_code(Code.SERVICE_NOT_AVAILABLE, "the broker changes its role"), True, False),
        (error_from_code(Code.OUTCOME_UNKNOWN, "the lead was lost"), False, True),
        (UnknownOutcome("the connection was lost"), False, True),
        (TimedOut("no answer in time"), False, False),
        (DiskFull("full"), False, False),
        (Throttled("busy"), False, False),
        (Rejected("no"), False, False),
    ],
)
def test_what_makes_a_client_look_for_a_leader(error, spare, lost):
    assert (nobody_leads(error), was_lost(error)) == (spare, lost)
