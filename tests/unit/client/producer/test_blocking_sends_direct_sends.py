"""Blocking sends on a connection of the caller's thread: real sockets, a cluster in memory."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

import pytest

from kourou import ClientSettings, ProducerSettings, SendStatus
from kourou.client.producer import blocking_sends, leader_wait
from kourou.errors import MessageIllegal, TimedOut, Unavailable
from kourou.protocol.messages.sends import EndTransaction, SendRecords
from kourou.protocol.request import Request
from kourou.protocol.wire.frames import FrameKind, decode_request, encode_reply, encode_request
from kourou.runtime import Peer
from kourou.sync import Client
from kourou.transport import blocking_wire
from kourou.transport.zmq_server import Inbound, ZmqServer
from kourou_rigs.wire_cluster import WireCluster
from kourou_rigs.wire_core import CoreBroker
from kourou_rigs.wire_faults import Answer, Cut, Silence, always

WAIT_S = 20


class Door:
    """One address of a cluster in memory, on a socket. `came` has each request and its peer."""

    def __init__(self, cluster: WireCluster, broker: CoreBroker | None) -> None:
        self.cluster = cluster
        self.address = ""
        self.came: list[tuple[Peer, Request]] = []
        self.gone: list[Peer] = []
        self._ends: dict[Peer, End] = {}
        self._server = ZmqServer("127.0.0.1:0", self._frames, self.gone.append)
        self._server.start()
        self.port = f"127.0.0.1:{self._server.port}"
        if broker is not None:
            cluster.brokers.pop(broker.address)
            broker.address = self.address = self.port
            cluster.brokers[self.port] = broker

    def _frames(self, inbound: list[Inbound]) -> None:
        for one in inbound:
            request, correlation = decode_request(one.frame), one.frame.correlation
            self.came.append((one.peer, request))
            end = self._ends.setdefault(one.peer, End(self, one.peer))
            body = b"".join(map(bytes, one.frame.body))
            try:
                answer = self.cluster.answer(end, correlation, request, body)  # type: ignore[arg-type]
            except Silence:
                continue
            except Cut:
                self._server.cut(one.peer, "a test wants it")
                continue
            if answer is not None:
                end.reply(correlation, answer)

    def send(self, peer: Peer, head: bytes, body: bytes) -> None:
        self._server.send(peer, [head, body] if body else [head])

    def cut_all(self) -> None:
        for peer in {peer for peer, _ in self.came} - set(self.gone):
            self._server.cut(peer, "a test wants it")

    def stop(self) -> None:
        self._server.close()

    def sends(self) -> list[tuple[Peer, SendRecords]]:
        return [(peer, one) for peer, one in self.came if isinstance(one, SendRecords)]

    def ends(self) -> list[Peer]:
        return [peer for peer, one in self.came if isinstance(one, EndTransaction)]


class End:
    """The broker's end of one connection to a door."""

    def __init__(self, door: Door, peer: Peer) -> None:
        self.door, self.peer, self.address = door, peer, door.address

    @property
    def closed(self) -> bool:
        return self.peer in self.door.gone

    def reply(self, correlation: int, answer: Answer) -> None:
        head = encode_reply(correlation, answer.code, answer.remark, answer.header)
        self.door.send(self.peer, head, answer.body)

    def hear(self, request: Request, body: bytes = b"") -> None:
        head = encode_request(request, correlation=7, deadline_ms=0, kind=FrameKind.NOTIFY)
        self.door.send(self.peer, head, body)


class Place:
    """A loop on a thread, where the doors of a cluster are."""

    def __init__(self) -> None:
        self.cluster = WireCluster()
        self.cluster.topics["T"] = (4, 4)
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever)
        self.thread.start()
        self.doors: list[Door] = []
        self.namesrv = self.door(None)

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        done: Future[Any] = Future()

        def run() -> None:
            try:
                done.set_result(function(*arguments))
            except BaseException as error:  # noqa: BLE001 - it is raised where it is waited for
                done.set_exception(error)

        self.loop.call_soon_threadsafe(run)
        return done.result(WAIT_S)

    def door(self, broker: CoreBroker | None) -> Door:
        door: Door = self.call(Door, self.cluster, broker)
        self.doors.append(door)
        return door

    def stop(self) -> None:
        for door in self.doors:
            self.call(door.stop)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(WAIT_S)
        self.loop.close()


@pytest.fixture
def place() -> Iterator[Place]:
    made = Place()
    yield made
    made.stop()


@pytest.fixture
def broker(place: Place) -> CoreBroker:
    return place.cluster.broker()


@pytest.fixture
def door(place: Place, broker: CoreBroker) -> Door:
    return place.door(broker)


@pytest.fixture
def mq(place: Place, door: Door) -> Iterator[Client]:
    with Client(f"tcp://{place.namesrv.port}", group="p") as client:
        yield client


def test_a_thread_alone_sends_and_receives_on_a_connection_of_its_own(door, broker, mq) -> None:
    results = [mq.send("T", b"%d" % number, order_key="k") for number in range(3)]
    assert [one.offset for one in results] == [0, 1, 2]
    assert {one.status for one in results} == {SendStatus.SEND_OK}
    assert [one.body for one in broker.stored("T")] == [b"0", b"1", b"2"]
    assert len({peer for peer, _ in door.sends()}) == 1
    assert {peer for peer, one in door.came if not isinstance(one, SendRecords)}.isdisjoint(
        {peer for peer, _ in door.sends()}
    )
    assert results[0].offset_message_id


def test_threads_at_once_lose_and_double_nothing(door, broker, mq) -> None:
    def work() -> None:
        for _ in range(50):
            mq.send("T", b"x")

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)
    stored = broker.stored("T")
    assert len({one.message_id for one in stored}) == len(stored) == 400
    assert len({peer for peer, _ in door.sends()}) == 2, "some shared the I/O thread's"


def test_a_batch_leaves_as_one_frame(door, broker, mq, monkeypatch) -> None:
    mq.send("T", b"first", order_key="k")
    ((own, _),) = door.sends()
    results = mq.send_batch("T", [b"1", b"2", b"3"], order_key="k")
    assert [one.offset for one in results] == [1, 2, 3]
    assert len({one.message_id for one in results}) == 3
    assert [peer for peer, _ in door.sends()] == [own, own]
    broker.faults[SendRecords] = [Answer(13, remark="no")]
    with pytest.raises(MessageIllegal, match="no"):
        mq.send_batch("T", [b"4", b"5"])
    broker.faults[SendRecords] = [Answer(2, remark="busy")]  # SYSTEM_BUSY
    assert len(mq.send_batch("T", [b"6", b"7"])) == 2
    assert [one.attempt for _, one in door.sends()] == [1, 1, 1, 1, 2]
    stored = {one.body for one in broker.stored("T")}
    assert stored == {b"first", b"1", b"2", b"3", b"6", b"7"}


@pytest.mark.parametrize("first", ["oneway", "callback"])
def test_what_was_handed_over_before_is_not_overtaken(broker, mq, first, monkeypatch) -> None:
    monkeypatch.setattr(blocking_sends, "BlockingWire", None)
    if first == "oneway":
        mq.send_oneway("T", b"1", order_key="k")
    else:
        mq.send_async("T", b"1", lambda _: None, order_key="k")
    mq.send("T", b"2", order_key="k")
    assert [one.body for one in broker.stored("T")] == [b"1", b"2"]


def test_a_connection_that_ends_under_a_send_leads_to_a_second_attempt(door, broker, mq) -> None:
    broker.faults[SendRecords] = [Cut]
    mq.send("T", b"1")
    assert [one.attempt for _, one in door.sends()] == [1, 2]
    assert len(broker.stored("T")) == 1


def test_a_connection_that_ended_meanwhile_is_seen_before_a_send(place, door, mq) -> None:
    mq.send("T", b"1")
    place.call(door.cut_all)
    place.call(lambda: None)  # by then the turn is over in which they are closed
    mq.send("T", b"2")
    assert [one.attempt for _, one in door.sends()] == [1, 1]
    assert len({peer for peer, _ in door.sends()}) == 2


def test_an_old_connection_is_not_trusted(door, mq, monkeypatch) -> None:
    mq.send("T", b"1")
    monkeypatch.setattr(blocking_wire, "FRESH_FOR_MS", -1)
    mq.send("T", b"2")
    assert len({peer for peer, _ in door.sends()}) == 2
    assert door.sends()[0][0] in door.gone


def test_silence_ends_with_the_time_of_the_send(place, broker, door, mq, monkeypatch) -> None:
    quick(monkeypatch)
    mq.send("T", b"1")
    broker.faults[SendRecords] = [Silence]
    with pytest.raises(TimedOut, match="did not reply in time"):
        mq.send("T", b"2", timeout_ms=60)
    assert mq.send("T", b"3").status is SendStatus.SEND_OK
    assert [one.attempt for _, one in door.sends()] == [1, 1, 1]


def test_a_frozen_leader_is_left_as_soon_as_another_leads(
    place, broker, door, mq, monkeypatch
) -> None:
    quick(monkeypatch)
    monkeypatch.setattr(leader_wait, "SILENT_MS", 20)
    monkeypatch.setattr(leader_wait, "REFRESH_MS", 20)
    mq.send("T", b"1")
    follower = place.call(place.cluster.follower, broker)
    other = place.door(follower)

    def freeze(_request: Request) -> None:
        place.cluster.lead(follower)
        raise Silence

    broker.faults[SendRecords] = always(freeze)
    assert mq.send("T", b"2", timeout_ms=15_000).offset == 0
    assert [one.attempt for _, one in other.sends()] == [2]


def test_where_no_connection_can_be_had_the_other_way_says_why(place, door, mq) -> None:
    mq.send("T", b"1")
    place.call(door.stop)
    with pytest.raises(Unavailable):
        mq.send("T", b"2", timeout_ms=200)


def test_closing_the_client_ends_the_connection(place, door) -> None:
    with Client(f"tcp://{place.namesrv.port}", group="p") as client:
        client.send("T", b"1")
    ((peer, _),) = door.sends()
    for _ in range(1_000):
        if peer in door.gone:
            break
        place.call(lambda: None)
    assert peer in door.gone


def test_ctrl_c_while_waiting_gives_the_connection_up(door, broker, mq, monkeypatch) -> None:
    """Its reply may still come: nobody may take it for that of the next send."""
    mq.send("T", b"1")
    broker.faults[SendRecords] = [Silence]

    def interrupted(wire: blocking_wire.BlockingWire, _frames: object) -> bool:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(blocking_wire.BlockingWire, "_read", interrupted)
        with pytest.raises(KeyboardInterrupt):
            mq.send("T", b"2")
    mq.send("T", b"3")
    assert len({peer for peer, _ in door.sends()}) == 2


@pytest.mark.parametrize(
    ("client", "producer"),
    [
        (ClientSettings(log_messages=True), ProducerSettings()),
        (ClientSettings(), ProducerSettings(send_latency_fault_enable=True)),
    ],
)
def test_whoever_wants_to_hear_of_every_send_goes_the_usual_way(
    place, door, client, producer, monkeypatch, caplog
) -> None:
    monkeypatch.setattr(blocking_sends, "BlockingWire", None)
    caplog.set_level("INFO", "kourou.client.send")
    with Client(f"tcp://{place.namesrv.port}", settings=client, producer=producer) as mq:
        mq.send("T", b"1")
    assert len(door.sends()) == 1


def test_half_message_and_end_take_the_connection_of_the_thread(door, broker, mq) -> None:
    mq.transaction_check("T")(lambda _: None)
    with mq.transaction("T", b"1") as tx:
        assert len(door.sends()) == 1
        assert not door.ends()
    assert tx.reported
    assert [peer for peer, _ in door.sends()] == door.ends()


@pytest.mark.parametrize("first", [Cut, Answer(14, remark="not the leader")])
def test_an_end_that_was_not_accepted_is_sent_again(door, broker, mq, first) -> None:
    mq.transaction_check("T")(lambda _: None)
    broker.faults[EndTransaction] = [first]
    with mq.transaction("T", b"1") as tx:
        pass
    assert tx.reported
    direct, again = door.ends()
    assert direct != again


def test_ctrl_c_while_an_end_is_sent_leaves_the_rest_to_the_io_thread(
    door, broker, mq, monkeypatch
) -> None:
    mq.transaction_check("T")(lambda _: None)
    heard = threading.Event()

    def interrupted(wire: blocking_wire.BlockingWire, _frames: object) -> bool:
        raise KeyboardInterrupt

    broker.faults[EndTransaction] = [Silence, lambda _: heard.set()]
    with (
        pytest.raises(KeyboardInterrupt),
        monkeypatch.context() as patched,
        mq.transaction("T", b"1"),
    ):
        patched.setattr(blocking_wire.BlockingWire, "_read", interrupted)
    assert heard.wait(WAIT_S)
    assert len(door.ends()) == 2


def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a thread look up often, so that a test need not wait."""
    monkeypatch.setattr(blocking_wire, "WAIT_MS", 10)
    monkeypatch.setattr(blocking_sends, "SHARED_MS", 0)
