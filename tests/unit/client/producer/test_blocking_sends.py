"""Sending from threads."""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace

import pytest

from kourou import Client as AsyncClient
from kourou import Message, SendStatus
from kourou.client.producer.batches import SomeNotSent
from kourou.client.producer.blocking_sends import _Callback
from kourou.client.producer.pending_sends import CallbackPort
from kourou.errors import BadRequest, DiskFull, MessageIllegal, Unavailable, UnknownOutcome
from kourou.model.topic import MessageQueue
from kourou.protocol.messages.sends import SendRecords, SendRecordsResponse
from kourou.protocol.wire.frames import FrameKind
from kourou.sync import Client
from kourou_rigs.wire_faults import Answer, always


@pytest.fixture
def mq(cluster, broker, tools):
    with Client(tools.NAMESRV, group="p", dial=cluster.dial) as client:
        yield client


def test_the_queue_is_chosen_in_the_same_ways(mq):
    queue = MessageQueue("T", "broker-a", 3)
    assert mq.send("T", b"", queue=queue).queue == queue
    assert len({mq.send("T", b"", order_key="k").queue for _ in range(4)}) == 1
    assert mq.send("T", b"", selector=lambda queues, *_: queues[2]).queue.queue_id == 2


@pytest.mark.feature("F165", "F286")
def test_callbacks(broker, mq, caplog):
    outcomes, threads, done = [], set(), threading.Semaphore(0)

    def callback(outcome):
        outcomes.append(outcome)
        threads.add(threading.current_thread().name)
        done.release()
        raise ValueError("a callback's own affair")

    mq.send_async("T", b"x", callback)
    done.acquire()
    broker.faults[SendRecords] = always(Answer(13, remark="no"))
    mq.send_async("T", b"x", callback)
    done.acquire()
    assert outcomes[0].status is SendStatus.SEND_OK
    assert isinstance(outcomes[1], MessageIllegal)
    assert all(name.startswith("kourou-callback") for name in threads)


def test_closing_runs_the_pending_callbacks(cluster, broker, tools):
    outcomes = []
    with Client(tools.NAMESRV, dial=cluster.dial) as client:
        for _ in range(20):
            client.send_async("T", b"x", outcomes.append)
    assert len(outcomes) == len(broker.stored("T")) == 20


@pytest.mark.feature("F166")
def test_oneway(cluster, broker, mq):
    mq.send_oneway("T", b"x")
    mq.send("T", b"y")
    assert sorted(stored.body for stored in broker.stored("T")) == [b"x", b"y"]
    kinds = [kind for wire in cluster.wires for kind in wire.kinds]
    assert kinds.count(FrameKind.ONEWAY) == 1


def test_several(broker, mq):
    results = mq.send_many([Message("T", b"1"), Message("U", b"2")])
    assert [result.queue.topic for result in results] == ["T", "U"]
    assert len(mq.send_many("T", [b"x"] * 9_000)) == 9_000
    assert mq.send_many([]) == []
    batch = mq.send_batch("T", [b"1", b"2"])
    assert [one.offset - batch[0].offset for one in batch] == [0, 1]
    assert mq.send_batch("T", []) == []


def test_failures(broker, mq):
    broker.faults[SendRecords] = always(Answer(30002, remark="full"))
    with pytest.raises(DiskFull):
        mq.send("T", b"x")
    refused = SendRecordsResponse(
        target_codes=[13], target_remarks=["no"], target_offsets=[-1], runs=[]
    )
    broker.faults[SendRecords] = [Answer(header=refused)] * 2
    with pytest.raises(SomeNotSent):
        mq.send_many([Message("T", b"x")])
    with pytest.raises(MessageIllegal):
        mq.send_batch("T", [b"x"])
    with pytest.raises(BadRequest):
        mq.send("T", b"x", delay_level=-1)
    assert issubclass(DiskFull, Unavailable)


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt])
def test_a_callback_that_leaves_oddly_keeps_no_other_from_being_called(
    cluster, broker, caplog, error
):
    class OneThread:
        def submit(self, work, outcomes):
            work(outcomes)

    called = []

    def callback(outcome):
        called.append(outcome)
        raise error("odd")

    port = CallbackPort(None, OneThread(), count_max=2)
    port._room.acquire()
    port._room.acquire()
    port.deliver(
        [(SimpleNamespace(waiter=_Callback(callback)), one) for one in ("first", "second")]
    )
    assert called == ["first", "second"]
    assert port._room.acquire(blocking=False), "there is room for others again"
    assert "odd" in caplog.text


def test_a_dead_address_costs_as_much_as_the_other_face(cluster, broker):
    """One question to each name server, and the error of the last: three seconds each in life."""
    names = ("n1:9876", "n2:9876")
    cluster.down.update(f"{name.removesuffix('9876')}19876" for name in names)
    waited: list[list[tuple[str, int]]] = []

    def dial(address, on_notify):
        wire = cluster.dial(address, on_notify)
        request = wire.request

        async def counted(asked, *, timeout_ms, **more):
            waited[-1].append((address, timeout_ms))
            return await request(asked, timeout_ms=timeout_ms, **more)

        wire.request = counted
        return wire

    async def other_face():
        async with AsyncClient(";".join(names), dial=dial) as mq:
            with pytest.raises((Unavailable, UnknownOutcome)):
                await mq.send("T", b"")

    waited.append([])
    asyncio.run(other_face())
    waited.append([])
    with Client(";".join(names), dial=dial) as mq, pytest.raises((Unavailable, UnknownOutcome)):
        mq.send("T", b"")
    other, own = waited
    assert sorted(own) == sorted(other)
    assert len(own) == len(names)
