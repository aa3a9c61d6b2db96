"""A cluster without sockets serves a client as a real one does."""

from __future__ import annotations

import pytest

from kourou import Client
from kourou.errors import TimedOut, UnknownOutcome
from kourou.protocol.messages.pulls import GetMaxOffset
from kourou_rigs.wire_broker import Cut, Silence
from kourou_rigs.wire_cluster import WireCluster

ASK = GetMaxOffset(topic="T", queue_id=0)


@pytest.fixture
def cluster():
    cluster = WireCluster()
    cluster.broker("broker-a")
    return cluster


async def test_the_example_of_its_docstring(cluster):
    broker = cluster.brokers["broker-a:20911"]
    async with Client("127.0.0.1:9876", dial=cluster.dial) as mq:
        await mq.send("orders", b"...")
    assert [message.body for message in broker.stored("orders")] == [b"..."]
    assert cluster.asked[0][0] == "127.0.0.1:19876"


@pytest.mark.parametrize(("what", "error"), [(Silence, TimedOut), (Cut, UnknownOutcome)])
async def test_an_intercept_may_end_a_request(cluster, what, error):
    def intercept(_request):
        raise what

    cluster.brokers["broker-a:20911"].intercept = intercept
    wire = cluster.dial("broker-a:20911", print)
    with pytest.raises(error):
        await wire.request(ASK, timeout_ms=10)


async def test_a_mistake_in_an_intercept_ends_the_request_too(cluster):
    import asyncio

    def intercept(_request):
        raise ZeroDivisionError

    mistakes = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: mistakes.append(context))
    cluster.brokers["broker-a:20911"].intercept = intercept
    wire = cluster.dial("broker-a:20911", print)
    with pytest.raises(UnknownOutcome, match="ZeroDivisionError"):
        await wire.request(ASK, timeout_ms=10)
    assert isinstance(mistakes[0]["exception"], ZeroDivisionError)


async def test_servers_that_are_down(cluster):
    cluster.down.add("broker-a:20911")
    wire = cluster.dial("tcp://broker-a:20911", print)
    with pytest.raises(UnknownOutcome, match="is down"):
        await wire.request(ASK, timeout_ms=10)


async def test_closing_ends_what_is_in_flight(cluster):
    wire = cluster.dial("broker-a:20911", print)
    outcomes = []
    from kourou.protocol.wire.frames import encode_request

    head = encode_request(ASK, correlation=1, deadline_ms=10)
    wire.submit([head], 1, outcomes.append, 0)
    wire.close()
    assert isinstance(outcomes[0], UnknownOutcome)
    assert cluster.wires_to(cluster.brokers["broker-a:20911"]) == []
