"""A cluster without sockets, for tests of code that uses `kourou.Client`.

    cluster = WireCluster()
    broker = cluster.broker("broker-a")
    async with Client("127.0.0.1:9876", dial=cluster.dial) as mq:
        await mq.send("orders", b"...")
    assert [message.body for message in broker.stored("orders")] == [b"..."]

Name server and brokers replace the client's connections. Every request and reply is encoded and
decoded as on the wire, so that only ZeroMQ is left out.

State: soft. A connection belongs to the event loop that opened it: a client that consumes in order
has connections on two, the application's and that of its I/O thread. So requests are answered one
at a time, and a reply is passed to the loop of its connection. A test changes the cluster through
its attributes.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from itertools import count

from msgspec import structs

from kourou.client.session.io_thread import running_loop
from kourou.engine.roles.follower import REFUSED
from kourou.errors import Code, KourouError, TimedOut, UnknownOutcome
from kourou.model.filter import FilterFailure
from kourou.model.message import StoredMessage
from kourou.model.subscription import MATCH_ALL
from kourou.model.topic import BrokerData, QueueData, TopicRoute
from kourou.protocol.bodies.route_bodies import (
    ClusterInfo,
    encode_cluster_info,
    encode_topic_list,
    encode_topic_route,
)
from kourou.protocol.messages import namesrv
from kourou.protocol.messages.pulls import PullFlag, PullMessage, PullResponse
from kourou.protocol.record.message_record import decode_record
from kourou.protocol.request import Request
from kourou.protocol.table import REQUESTS
from kourou.protocol.wire.frames import (
    NO_TRACE,
    Frame,
    FrameKind,
    decode_frame,
    decode_reply,
    decode_request,
    encode_reply,
    encode_request,
)
from kourou.transport.pending_requests import Outcome
from kourou.transport.tcp_link import Buffer
from kourou.transport.zmq_client import WireReply
from kourou_rigs.wire_core import CLUSTER, CoreBroker, R, Wire
from kourou_rigs.wire_faults import Answer, Cut, Faults, Frozen, Silence

Predicate = Callable[[StoredMessage], bool]


class WireCluster:
    """A name server with any address, and brokers by address.

    `topics` are (read queues, write queues) by name, the same on every broker; `perms` overrides
    the default 6. Servers with an address in `down` lose every connection at its first request.
    `asked` has the requests to name servers, with their addresses. `leaders` maps broker names to
    the address of the leader, "" for no leader; by default the first replica leads.
    """

    def __init__(self) -> None:
        self.brokers: dict[str, CoreBroker] = {}
        self.filter_servers: dict[str, WireFilterServer] = {}
        self.topics: dict[str, tuple[int, int]] = {"TBW102": (8, 8)}
        self.perms: dict[str, int] = {}
        self.down: set[str] = set()
        self.leaders: dict[str, str] = {}
        self.asked: list[tuple[str, Request]] = []
        self.wires: list[MemoryWire] = []
        self.answering = threading.Lock()

    def broker(self, name: str = "broker-a") -> CoreBroker:
        """Add a broker."""
        address = f"{name}:20911"
        broker = CoreBroker(name, address, len(self.brokers) + 1, self.topics, self.perms)
        self.brokers[address] = broker
        return broker

    def follower(self, leader: CoreBroker) -> CoreBroker:
        """Add a replica of a broker's log, which always has the leader's data."""
        count = sum(one.name == leader.name for one in self.brokers.values())
        address = f"{leader.name}:{20_911 + 1_000 * count}"
        number = len(self.brokers) + 1
        broker = CoreBroker(leader.name, address, number, self.topics, self.perms, leader)
        self.brokers[address] = broker
        return broker

    def lead(self, broker: CoreBroker) -> None:
        """Make this replica the leader, and register it."""
        self.leaders[broker.name] = broker.address

    def nobody_leads(self, broker: CoreBroker, *, down: bool = True) -> None:
        """Let the leader be down, or running but rejecting requests; no leader is registered."""
        self.leaders[broker.name] = ""
        if down:
            self.down.add(broker.address)
            for wire in self.wires_to(broker):
                wire.lose()  # on the loop of that connection, which may be another than this one

    def filter_server(self, broker: CoreBroker) -> WireFilterServer:
        """Add a filter server to a broker."""
        number = sum(one.broker is broker for one in self.filter_servers.values())
        server = WireFilterServer(broker, f"{broker.name}:{20_915 + number}")
        self.filter_servers[server.address] = server
        return server

    def dial(self, address: str, on_notify: Callable[[Frame], None]) -> MemoryWire:
        """Open a connection; pass this method as a client's `dial`."""
        wire = MemoryWire(self, address.removeprefix("tcp://"), on_notify)
        self.wires.append(wire)
        asyncio.get_running_loop().call_soon(wire.stands)
        return wire

    def wires_to(self, broker: CoreBroker) -> list[MemoryWire]:
        """The open connections to a broker."""
        return [wire for wire in self.wires if wire.address == broker.address and not wire.closed]

    def answer(
        self, wire: MemoryWire, correlation: int, request: Request, body: bytes
    ) -> Answer | None:
        """The reply of the server with the connection's address; None if it is sent later."""
        broker = self.brokers.get(wire.address)
        if broker is not None:
            if isinstance(request, REFUSED) and broker.address != self._leader_of(broker.name):
                broker.seen.append(request)
                return Answer(Code.SERVICE_NOT_AVAILABLE, remark="this broker is a follower")
            return broker.answer(wire, correlation, request, body)
        filter_server = self.filter_servers.get(wire.address)
        if filter_server is not None:
            return filter_server.answer(wire, correlation, request, body)
        self.asked.append((wire.address, request))
        return self._as_name_server(request)

    def _as_name_server(self, request: Request) -> Answer:
        if isinstance(request, namesrv.GetRouteInfoByTopic):
            if request.topic not in self.topics:
                return Answer(Code.TOPIC_NOT_EXIST)
            return Answer(body=encode_topic_route(self.route(request.topic)))
        if isinstance(request, namesrv.GetBrokerClusterInfo):
            brokers = {data.broker_name: data for data in self._brokers()}
            info = ClusterInfo(brokers, {CLUSTER: tuple(brokers)})
            return Answer(body=encode_cluster_info(info))
        if isinstance(request, namesrv.GetAllTopicListFromNamesrv):
            return Answer(body=encode_topic_list(self.topics))
        if isinstance(request, namesrv.DeleteTopicInNamesrv):
            self.topics.pop(request.topic, None)
            return Answer()
        return Answer(Code.REQUEST_CODE_NOT_SUPPORTED)

    def route(self, topic: str) -> TopicRoute:
        """The current route of a topic."""
        read, write = self.topics[topic]
        perm = self.perms.get(topic, 6)
        return TopicRoute(
            self._brokers(),
            tuple(QueueData(one.broker_name, read, write, perm) for one in self._brokers()),
            filter_server_table={
                broker.address: tuple(
                    one.address for one in self.filter_servers.values() if one.broker is broker
                )
                for broker in self.brokers.values()
                if any(one.broker is broker for one in self.filter_servers.values())
            },
        )

    def _leader_of(self, name: str) -> str:
        first = next((one.address for one in self.brokers.values() if one.name == name), "")
        return self.leaders.get(name, first)

    def _brokers(self) -> tuple[BrokerData, ...]:
        """The registered brokers; replicas that are down are left out."""
        members: dict[str, dict[int, str]] = {}
        for broker in self.brokers.values():
            found = members.setdefault(broker.name, {})
            if broker.address == self._leader_of(broker.name):
                found[0] = broker.address
            elif broker.address not in self.down:
                found[broker.number] = broker.address
        return tuple(BrokerData(CLUSTER, name, found) for name, found in members.items())


class MemoryWire:
    """A connection that encodes and decodes all frames, on the event loop that opened it.

    `kinds` has the kind of every frame sent, `deadlines` its request code and deadline in ms;
    `replies` the client's replies to requests.
    """

    def __init__(
        self, cluster: WireCluster, address: str, on_notify: Callable[[Frame], None]
    ) -> None:
        self.address = address
        self.on_connected: Callable[[], None] | None = None
        self.kinds: list[FrameKind] = []
        self.deadlines: list[tuple[int, int]] = []
        self.replies: list[Frame] = []
        self.closed = False
        self._cluster = cluster
        self._on_notify = on_notify
        self._loop = asyncio.get_running_loop()
        self._numbers = count(1)
        self._pending: dict[int, Callable[[Outcome], None]] = {}

    # -- the client's side ------------------------------------------------------------------------

    @property
    def connected(self) -> bool:
        """True if the connection is open."""
        return not self.closed and self.address not in self._cluster.down

    def stands(self) -> None:
        """Notify the client if the connection is open."""
        if self.connected and self.on_connected is not None:
            self.on_connected()

    def gather(self) -> None:
        """No effect: messages are not batched here."""

    def next_correlation(self) -> int:
        """A correlation number for a request."""
        return next(self._numbers)

    def submit(
        self,
        parts: Sequence[Buffer],
        correlation: int,
        callback: Callable[[Outcome], None] | None,
        deadline_ms: int,
    ) -> None:
        """Send an encoded request."""
        assert not self.closed, "a closed connection is not used"
        frame = decode_frame([bytes(part) for part in parts])
        self.kinds.append(frame.kind)
        self.deadlines.append((frame.code, frame.deadline_ms))
        if callback is not None:
            self._pending[correlation] = callback
        self._loop.call_soon(self._arrive, frame)

    async def request(
        self,
        request: Request,
        *,
        body: Sequence[Buffer] = (),
        timeout_ms: int,
        trace: bytes = NO_TRACE,
    ) -> WireReply:
        """Send a request and wait for the reply."""
        correlation = self.next_correlation()
        head = encode_request(request, correlation=correlation, deadline_ms=timeout_ms, trace=trace)
        future: asyncio.Future[Frame] = self._loop.create_future()

        def ended(outcome: Outcome) -> None:
            if future.done():
                return
            if isinstance(outcome, KourouError):
                future.set_exception(outcome)
            else:
                future.set_result(outcome)

        self.submit([head, *body], correlation, ended, 0)
        frame = await future
        code, remark, header = decode_reply(frame, REQUESTS[request.code].response)
        return WireReply(code, remark, header, frame.body)

    def oneway(self, request: Request, *, body: Sequence[Buffer] = (), timeout_ms: int) -> None:
        """Send a request without a reply."""
        correlation = self.next_correlation()
        head = encode_request(
            request, correlation=correlation, deadline_ms=timeout_ms, kind=FrameKind.ONEWAY
        )
        self.submit([head, *body], correlation, None, 0)

    def send_parts(self, parts: Sequence[Buffer]) -> bool:
        """Reply to a request of the server."""
        self.replies.append(decode_frame(parts))
        return True

    def close(self) -> None:
        """Close; pending requests fail."""
        self.closed = True
        self.cut("the connection was closed")

    # -- the server's side ------------------------------------------------------------------------

    def _arrive(self, frame: Frame) -> None:
        correlation = frame.correlation
        if self.address in self._cluster.down:
            self._end(correlation, UnknownOutcome(f"{self.address} is down"))
            return
        request = decode_request(frame)
        body = b"".join(map(bytes, frame.body))
        try:
            with self._cluster.answering:
                answer = self._cluster.answer(self, correlation, request, body)
        except Silence:
            self._end(correlation, TimedOut(f"{self.address} did not answer in time"))
        except Frozen:
            pass
        except Cut:
            self._end(correlation, UnknownOutcome("the connection was lost"))
        except Exception as error:
            # An error in a test's fault is reported to the client, so that the test does not hang.
            self._end(correlation, UnknownOutcome(f"the server failed: {error!r}"))
            raise
        else:
            if answer is not None:
                self.reply(correlation, answer)

    def reply(self, correlation: int, answer: Answer) -> None:
        """Reply to a request of the client; callable from any thread."""
        head = encode_reply(correlation, answer.code, answer.remark, answer.header)
        frame = decode_frame([head, answer.body] if answer.body else [head])
        if running_loop() is self._loop:
            self._end(correlation, frame)
        elif not self.closed:  # another connection's request released this one
            self._loop.call_soon_threadsafe(self._end, correlation, frame)

    def _end(self, correlation: int, outcome: Outcome) -> None:
        callback = self._pending.pop(correlation, None)
        if callback is not None:
            callback(outcome)

    def hear(
        self, request: Request, body: bytes = b"", *, kind: FrameKind = FrameKind.NOTIFY
    ) -> None:
        """Send an unsolicited frame to the client; callable from any thread."""
        head = encode_request(request, correlation=7, deadline_ms=0, kind=kind)
        frame = decode_frame([head, body] if body else [head])
        self._loop.call_soon_threadsafe(self._on_notify, frame)

    def lose(self) -> None:
        """Lose the connection; callable from any thread."""
        self._loop.call_soon_threadsafe(self.cut, "the connection was lost")

    def cut(self, why: str) -> None:
        """Fail all pending requests, as a lost connection does."""
        for correlation in list(self._pending):
            self._end(correlation, UnknownOutcome(why))


class WireFilterServer:
    """Answers pulls of groups that have a filter at the broker.

    `passes(message)` is the result of all filters. With a `failure`, its kind and reason, all
    filters fail. `seen` has all requests, `faults` what goes wrong.
    """

    def __init__(self, broker: CoreBroker, address: str) -> None:
        self.broker = broker
        self.address = address
        self.passes: Predicate = lambda _: True
        self.failure: tuple[FilterFailure, str] | None = None
        self.seen: list[Request] = []
        self.faults = Faults()
        self._filtered: dict[Wire, _Filtered] = {}

    def requests(self, kind: type[R]) -> list[R]:
        """The requests of a kind, in order."""
        return [request for request in self.seen if isinstance(request, kind)]

    @property
    def watchers(self) -> set[Callable[[], None]]:
        """Those of its broker."""
        return self.broker.watchers

    def answer(self, wire: Wire, correlation: int, request: Request, _body: bytes) -> Answer | None:
        """The reply to a request; None if it is sent later."""
        self.seen.append(request)
        wrong = self.faults.answer(request)
        if wrong is not None:
            return wrong
        if not isinstance(request, PullMessage):
            return Answer(Code.REQUEST_CODE_NOT_SUPPORTED, remark=type(request).__name__)
        name = request.subscription or ""
        assert request.sys_flag & PullFlag.CLASS_FILTER, "pulls from a filter server name a filter"
        state = self.broker.engine.control.filters.get(request.consumer_group, name)
        version = None if state is None else state.active
        failure = self.failure
        if state is None:
            failure = FilterFailure.MISSING, f"there is no filter {name}"
        elif version is None:
            failure = FilterFailure.DISABLED, f"filter {name} has no active version"
        if failure is not None:
            return self._failed(request, version, *failure)
        flags = request.sys_flag & ~PullFlag.CLASS_FILTER | PullFlag.SUBSCRIPTION
        plain = structs.replace(request, sys_flag=int(flags), subscription=MATCH_ALL)
        filtered = self._filtered.setdefault(wire, _Filtered(self, wire))
        filtered.versions[correlation] = version
        self.broker.handle(filtered, correlation, plain, b"")
        return None

    def _failed(
        self, request: PullMessage, version: int | None, kind: FilterFailure, reason: str
    ) -> Answer:
        header = PullResponse(
            suggest_which_broker_id=0,
            next_begin_offset=request.queue_offset,
            min_offset=0,
            max_offset=0,
            filter_version=version,
            filter_failure=str(kind),
        )
        return Answer(Code.FILTER_FAILED, header, remark=reason)


class _Filtered:
    """A connection to the broker whose replies are filtered before the consumer gets them."""

    def __init__(self, server: WireFilterServer, wire: Wire) -> None:
        self.versions: dict[int, int | None] = {}
        self._server = server
        self._wire = wire

    @property
    def closed(self) -> bool:
        """Whether the consumer closed its connection."""
        return self._wire.closed

    def reply(self, correlation: int, answer: Answer) -> None:
        """Forward the broker's reply with the messages that pass."""
        version = self.versions.pop(correlation)
        if isinstance(answer.header, PullResponse):
            answer.header = structs.replace(answer.header, filter_version=version)
        if answer.code == Code.SUCCESS:
            kept = [one for one in _records(answer.body) if self._server.passes(decode_record(one))]
            answer.body = b"".join(kept)
            if not kept:
                answer.code = Code.PULL_RETRY_IMMEDIATELY
        self._wire.reply(correlation, answer)

    def hear(self, request: Request, body: bytes = b"") -> None:
        """Forward a notification; brokers send these only to consumers."""
        self._wire.hear(request, body)


def _records(body: bytes) -> list[bytes]:
    found = []
    at = 0
    while at < len(body):
        size = int.from_bytes(body[at : at + 4], "big")
        found.append(body[at : at + size])
        at += size
    return found
