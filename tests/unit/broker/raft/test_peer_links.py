"""The links between members of a Raft group, over a real wire; the others are this test."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import zmq

from kourou.broker.raft import peer_links
from kourou.broker.raft.peer_links import PeerLinks, raft_messages
from kourou.engine.effects import Forward
from kourou.errors import Code, KourouError, Unavailable
from kourou.model.limits import CHUNK_BYTES_MAX, MEMBER_QUEUE_BYTES_MAX
from kourou.protocol.messages.broker_admin import DeleteTopicInBroker
from kourou.protocol.messages.replication import (
    AskVote,
    Attach,
    FetchLog,
    FetchLogResponse,
    LogChunk,
    Vote,
)
from kourou.protocol.request import Request
from kourou.protocol.wire.frames import FrameKind, decode_request, encode_reply
from kourou.replication.raft import inputs as raft_inputs
from kourou.runtime import MEMBERS, Origin, Peer, Received, Reply, ReplyTo
from kourou.service.processes import free_port
from kourou.service.protocol_server import ProtocolServers
from kourou.telemetry.metric_table import METRICS
from kourou.transport.zmq_server import Inbound, ZmqServer
from kourou.transport.zmq_socket import process_context
from kourou_rigs.clock import ManualClock
from kourou_rigs.waiting import until

VOTE = Vote(group="g", epoch=64, member="n0", granted=True)
FETCH = FetchLog(group="g", position=7, max_bytes=100)
FETCHED = FetchLogResponse(
    position=7, end=10, previous_epoch=1, data_epoch=2, confirmed=10, first_position=0
)
DELETE = DeleteTopicInBroker(topic="orders")
CLIENT = Peer(1, "zmq", ("127.0.0.1", 1))
TRACE = bytes(range(25))
FETCH_MS = 100


def chunk(body: bytes = b"") -> LogChunk:
    return LogChunk(
        group="g", epoch=64, leader="n0", position=7, end=7 + len(body), previous_epoch=0,
        data_epoch=64, confirmed=0, leader_end=10, first_position=0, round=1,
    )  # fmt: skip


class Other:
    """Another member's listener; what is asked is answered by `answers`, one after another."""

    def __init__(self, port: int = 0) -> None:
        self.heard: list[Inbound] = []
        self.answers: list[tuple[int, Any, bytes]] = []
        self.server = ZmqServer(f"127.0.0.1:{port}", self._heard, lambda _peer: None)
        self.server.start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server.port}"

    @property
    def requests(self) -> list[Request]:
        return [decode_request(one.frame) for one in self.heard]

    def _heard(self, frames: list[Inbound]) -> None:
        self.heard += frames
        for one in frames:
            if one.frame.kind is FrameKind.REQUEST and self.answers:
                code, header, body = self.answers.pop(0)
                head = encode_reply(one.frame.correlation, code, "told", header)
                self.server.send(one.peer, (head, body) if body else (head,))


class Bench:
    """The links of n0, whose others are made as they are asked for."""

    def __init__(self) -> None:
        self.others: list[Other] = []
        self.replies: list[Reply] = []
        self.clock = ManualClock()
        self.links: PeerLinks = PeerLinks("n0", {}, reply=self.replies.append, clock=self.clock)

    def other(self, port: int = 0) -> Other:
        self.others.append(made := Other(port))
        return made

    def dial(self, **addresses: str) -> PeerLinks:
        peers = {"n0": "127.0.0.1:1", **addresses}
        self.links = PeerLinks("n0", peers, reply=self.replies.append, clock=self.clock)
        self.links.open()
        return self.links

    def counted(self, member: str) -> tuple[object, object]:
        found = self.links.statistics()[member]
        return found.sent, found.dropped

    def forward(
        self,
        oneway: bool = False,
        body: bytes = b"",
        deadline_ms: int = 0,
        peer: Peer = CLIENT,
        origin: str = "",
    ) -> ReplyTo:
        to = ReplyTo(peer, 99, oneway, TRACE)
        parts = (body,) if body else ()
        self.links.forward(Forward("n1", to, DELETE, parts, deadline_ms, origin))
        return to


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    """Time is the test's; how often the connections look at it is the machine's."""
    monkeypatch.setattr(peer_links, "CONNECT_WAIT_MS", 20)
    monkeypatch.setattr(peer_links, "FORWARD_MS", 100)
    made = Bench()
    yield made
    made.links.close()
    for other in made.others:
        other.server.close()


def unused_address() -> str:
    """An address without a listener, which the system gives to no connection in the meantime."""
    return f"127.0.0.1:{free_port()}"


@pytest.fixture
def deaf() -> Iterator[str]:
    """The address of one that greets and reads nothing, as one whose process is stopped."""
    listener = process_context().socket(zmq.ROUTER)
    listener.set(zmq.RCVHWM, 1)
    port = listener.bind_to_random_port("tcp://127.0.0.1")
    yield f"127.0.0.1:{port}"
    listener.close(linger=0)


# -- messages -------------------------------------------------------------------------------------


async def test_what_is_said_arrives_in_order_and_at_that_member_only(bench: Bench) -> None:
    one, two = bench.other(), bench.other()
    links = bench.dial(n1=one.address, n2=two.address)
    await until(lambda: links.connected("n1") and links.connected("n2"))
    big = b"x" * CHUNK_BYTES_MAX
    assert links.send("n1", chunk(big), big)
    assert links.send("n1", chunk())
    assert links.send("n2", VOTE)
    await until(lambda: len(one.heard) == 2 and len(two.heard) == 1)
    assert one.requests == [chunk(big), chunk()]
    assert two.requests == [VOTE]
    assert [one.frame.kind for one in one.heard] == [FrameKind.ONEWAY, FrameKind.ONEWAY]
    assert bytes(one.heard[0].frame.body[0]) == big
    assert bench.counted("n1") == (2, 0)


async def test_what_cannot_be_said_at_once_is_not_said_later(bench: Bench) -> None:
    """Raft repeats; a vote of long ago would only disturb."""
    address = unused_address()
    links = bench.dial(n1=address)
    for _ in range(1_000):
        assert not links.send("n1", chunk(b"abc"), b"abc")
    assert bench.counted("n1") == (0, 1_000)
    assert bench.links.statistics()["n1"].waiting_bytes == 0
    other = bench.other(int(address.rpartition(":")[2]))
    await until(lambda: links.connected("n1"))
    assert links.send("n1", VOTE)
    await until(lambda: bool(other.heard))
    assert other.requests == [VOTE]


async def test_a_member_that_comes_back_is_found_within_a_tenth_of_a_second(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    delays: list[float] = []
    loop = asyncio.get_running_loop()
    later = loop.call_later

    def watched(delay: float, call: Any, *arguments: Any, **rest: Any) -> asyncio.TimerHandle:
        delays.append(delay)
        return later(delay, call, *arguments, **rest)

    first = bench.other()
    links = bench.dial(n1=first.address)
    await until(lambda: links.connected("n1"))
    monkeypatch.setattr(loop, "call_later", watched)
    first.server.close()
    await until(lambda: not links.connected("n1"))
    await until(lambda: len(delays) >= 4)
    assert max(delays) <= 0.1, "elections take a second"
    assert min(delays) >= 0.05, "nobody dials in a tight loop"
    again = bench.other(first.server.port)
    await until(lambda: links.connected("n1"))
    links.send("n1", VOTE)
    await until(lambda: bool(again.heard))


async def test_a_member_that_reads_nothing_costs_a_bounded_amount(bench: Bench, deaf: str) -> None:
    links = bench.dial(n1=deaf)
    await until(lambda: links.connected("n1"))
    body = b"x" * CHUNK_BYTES_MAX
    said = 0
    for _ in range(4_000):
        said += links.send("n1", chunk(body), body)
        if bench.counted("n1")[1] == 100:
            break
        await asyncio.sleep(0)
    assert bench.counted("n1") == (said, 100)
    assert said < 200, "most of it the machine took, and the pipe"
    waiting = bench.links.statistics()["n1"].waiting_bytes
    assert MEMBER_QUEUE_BYTES_MAX - 2 * CHUNK_BYTES_MAX < waiting <= MEMBER_QUEUE_BYTES_MAX


async def test_what_has_waited_for_too_long_is_dropped(bench: Bench, deaf: str) -> None:
    links = bench.dial(n1=deaf)
    await until(lambda: links.connected("n1"))
    body = b"x" * CHUNK_BYTES_MAX
    while bench.counted("n1")[1] == 0:
        links.send("n1", chunk(body), body)
        await asyncio.sleep(0)
    bench.clock.advance(peer_links.STALE_MS)
    await until(lambda: bench.links.statistics()["n1"].waiting_bytes == 0)


async def test_who_stops_says_nothing_more(bench: Bench) -> None:
    other = bench.other()
    links = bench.dial(n1=other.address)
    await until(lambda: links.connected("n1"))
    links.close()
    assert not links.send("n1", VOTE)
    assert not links.connected("n1")
    links.open()
    await until(lambda: links.send("n1", VOTE))
    await until(lambda: len(other.heard) == 1)


async def test_a_host_name_is_resolved_until_a_connection_is_established(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not in the thread of the library, where a slow look would silence everybody."""
    monkeypatch.setattr(peer_links, "LOOK_UP_S", 0.01)
    threads: set[str] = set()
    answers = [OSError("no such host"), "127.0.0.7", "127.0.0.1"]

    def look(host: str, port: int, **_: object) -> list[Any]:
        threads.add(threading.current_thread().name.rpartition("_")[0])
        assert host == "member-1"
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if isinstance(answer, OSError):
            raise answer
        return [(0, 0, 0, "", (answer, port))]

    monkeypatch.setattr(socket, "getaddrinfo", look)
    other = bench.other()
    links = bench.dial(n1=f"member-1:{other.server.port}")
    assert not links.send("n1", VOTE)
    bench.forward()
    assert [reply.code for reply in bench.replies] == [Code.SERVICE_NOT_AVAILABLE]
    assert isinstance((await fetched(links))[0], Unavailable)
    await until(lambda: links.connected("n1"))
    assert links.send("n1", VOTE)
    await until(lambda: bool(other.heard))
    assert (answers, threads) == (["127.0.0.1"], {"kourou-names"})


# -- questions ------------------------------------------------------------------------------------


async def fetched(links: PeerLinks, member: str = "n1") -> tuple[object, bytes]:
    answer: asyncio.Future[tuple[object, bytes]] = asyncio.get_running_loop().create_future()
    links.fetch(
        member, FETCH, lambda answered, body: answer.set_result((answered, bytes(body))), FETCH_MS
    )
    return await answer


async def test_a_member_is_asked_for_its_log(bench: Bench) -> None:
    other = bench.other()
    senseless = (Code.SUCCESS, VOTE, b"")
    other.answers = [(Code.SUCCESS, FETCHED, b"abc"), (Code.SYSTEM_BUSY, None, b""), senseless]
    links = bench.dial(n1=other.address)
    assert await fetched(links) == (FETCHED, b"abc")
    assert other.requests == [FETCH]
    refused, body = await fetched(links)
    assert isinstance(refused, Unavailable)
    assert (str(refused), body) == ("told", b"")
    assert isinstance((await fetched(links))[0], KourouError), "an answer without sense is none"


async def test_a_request_to_an_absent_replica_fails_soon(bench: Bench) -> None:
    links = bench.dial(n1=unused_address())
    waiting = asyncio.ensure_future(fetched(links))
    await asyncio.sleep(0)
    bench.clock.advance(peer_links.CONNECT_WAIT_MS)
    answered, _ = await waiting
    assert isinstance(answered, Unavailable)
    links.close()
    assert isinstance((await fetched(links))[0], Unavailable)


async def test_a_question_without_answer_does_not_cut_what_members_say(bench: Bench) -> None:
    other = bench.other()
    links = bench.dial(n1=other.address)
    await until(lambda: links.connected("n1"))
    waiting = asyncio.ensure_future(fetched(links))
    await until(lambda: FETCH in other.requests)
    bench.clock.advance(FETCH_MS)
    assert isinstance((await waiting)[0], KourouError)
    assert links.connected("n1")
    found = bench.links.statistics()["n1"]
    assert found.asking is not None
    assert found.talking is not None
    assert (found.asking.reopened, found.talking.reopened) == (1, 0)


# -- clients' requests ----------------------------------------------------------------------------


@pytest.mark.feature("F151")
async def test_the_leaders_answer_is_the_clients(bench: Bench) -> None:
    other = bench.other()
    other.answers = [(Code.TOPIC_NOT_EXIST, None, b"body")]
    bench.dial(n1=other.address)
    to = bench.forward(body=b"all of it", deadline_ms=bench.clock.monotonic_ms() + 2_000)
    await until(lambda: bool(bench.replies))
    (reply,) = bench.replies
    assert (reply.to, reply.code, reply.remark) == (to, Code.TOPIC_NOT_EXIST, "told")
    assert b"".join(reply.body) == b"body"
    frame = other.heard[0].frame
    assert decode_request(frame) == DELETE
    assert (b"".join(frame.body), frame.trace, frame.deadline_ms) == (b"all of it", TRACE, 2_000)
    assert bench.links.statistics()["n1"].forwarding == 0


@pytest.mark.parametrize("oneway", [False, True])
async def test_a_forwarded_request_names_its_user(bench: Bench, oneway: bool) -> None:
    other = bench.other()
    bench.dial(n1=other.address)
    longest = Origin("\u20ac" * 64, "\U0001f600" * 64, "2001:db8::1%" + "e" * 15, "zmq")
    for origin in ("till//10.1.2.3/zmq", str(longest), ""):
        bench.forward(oneway, body=b"all of it", origin=origin)
    await until(lambda: len(other.heard) == 3)
    frames = [one.frame for one in other.heard]
    assert [one.on_behalf_of for one in frames] == ["till//10.1.2.3/zmq", str(longest), ""]
    assert Origin.parse(frames[1].on_behalf_of) == longest
    for frame in frames:
        assert decode_request(frame) == DELETE
        assert (b"".join(frame.body), frame.trace) == (b"all of it", TRACE)
        assert frame.kind is (FrameKind.ONEWAY if oneway else FrameKind.REQUEST)
    assert bench.replies == [], "the other answers nothing"


async def test_what_never_left_was_not_done(bench: Bench) -> None:
    bench.dial(n1=unused_address())
    bench.forward()
    assert bench.replies == []
    bench.clock.advance(peer_links.CONNECT_WAIT_MS)
    await until(lambda: bool(bench.replies))
    assert bench.replies[0].code == Code.SERVICE_NOT_AVAILABLE
    assert "the leader n1 cannot be reached" in bench.replies[0].remark
    assert "nothing was done" in bench.replies[0].remark


@pytest.mark.parametrize("how", ["lost", "late", "stopping"])
async def test_what_left_may_have_been_done(how: str, bench: Bench) -> None:
    other = bench.other()
    links = bench.dial(n1=other.address)
    bench.forward(body=b"abc")
    await until(lambda: bool(other.heard))
    if how == "lost":
        other.server.close()
    elif how == "late":
        bench.clock.advance(peer_links.FORWARD_MS)
    else:
        links.close()
    await until(lambda: bool(bench.replies))
    assert [reply.code for reply in bench.replies] == [Code.OUTCOME_UNKNOWN]


async def test_what_is_not_even_tried(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    other = bench.other()
    links = bench.dial(n1=other.address)
    bench.forward(peer=Peer(2, "zmq", ("127.0.0.1", 2), MEMBERS))
    bench.clock.advance(10)
    bench.forward(deadline_ms=bench.clock.monotonic_ms())
    monkeypatch.setattr(peer_links, "FORWARDED_BYTES_MAX", 3)
    bench.forward(body=b"four")
    links.close()
    bench.forward()
    assert [reply.code for reply in bench.replies] == [
        Code.SERVICE_NOT_AVAILABLE,
        Code.DEADLINE_PASSED,
        Code.SYSTEM_BUSY,
        Code.SERVICE_NOT_AVAILABLE,
    ]
    assert other.heard == []


# -- what others say ------------------------------------------------------------------------------


def received(request: Request, *body: bytes, listener: str = MEMBERS) -> Received:
    return Received(ReplyTo(Peer(3, "zmq", ("h", 1), listener), 0), request, body, 0)


def test_a_burst_is_split_into_what_members_say_and_what_is_asked() -> None:
    ask = AskVote(group="g", epoch=1, candidate="n1", last_epoch=0, end=0)
    attach = received(Attach(cluster="c", broker_name="b", broker_id=1))
    fetch = received(FETCH)
    said, rest = raft_messages(
        [
            received(chunk(b"abc"), b"abc"),
            attach,
            received(ask),
            received(chunk(), b"a", b"b"),
            fetch,
        ]
    )
    assert said == [
        raft_inputs.MessageReceived(chunk(b"abc"), b"abc"),
        raft_inputs.MessageReceived(ask),
        raft_inputs.MessageReceived(chunk(), b"ab"),
    ]
    assert rest == [attach, fetch]
    assert raft_messages([]) == ((), [])
    of_client = [received(VOTE, listener="internal")]
    assert raft_messages(of_client) == ((), of_client), "a client says nothing as a member"


async def test_the_statistics_are_reported_with_those_of_listeners(bench: Bench) -> None:
    one = bench.other()
    links = bench.dial(n1=one.address, n2=unused_address())
    await until(lambda: links.connected("n1"))
    links.send("n1", VOTE)
    links.send("n2", VOTE)
    protocols = ProtocolServers()
    protocols.add(links)
    protocols.pause()
    assert links.connected("n1"), "it speaks on while it drains"
    shown = {family.name: family.samples for family in protocols.families({"node": "x"})}
    here, there = ({"node": "x", "peer": name} for name in ("n1", "n2"))
    assert shown == {
        "kourou_raft_peer_connected": [(here, 1), (there, 0)],
        "kourou_raft_messages_sent_total": [(here, 1), (there, 0)],
        "kourou_raft_messages_dropped_total": [(here, 0), (there, 1)],
        "kourou_raft_forwarding": [(here, 0), (there, 0)],
    }
    assert set(shown) <= set(METRICS)
    answered = protocols.statistics()["raft"]["n1"]
    assert (answered["connected"], answered["sent"], answered["talking"]["sent"]) == (True, 1, 1)
    protocols.close()
    assert not links.connected("n1")
