"""The connections of a Raft replica to all other replicas of its group.

State: soft.

Raft messages travel one way over one connection; requests with replies (FETCH_LOG, forwarded client
requests) use another one: a request that times out resets its connection, which must not delay a
vote. The response to a Raft message is a message of its own, over the responder's connection.

Messages that cannot be sent immediately are dropped, because Raft repeats them. So nothing is kept
for a replica that is not connected. One that is connected and does not read (its process is
stopped) costs at most MEMBER_PIPE_MESSAGES_MAX messages in the library and MEMBER_QUEUE_BYTES_MAX
bytes behind them, until its connection is closed.

An election takes a second or two, so a silent replica is detected much sooner than clients do:
`TALKING` closes a connection if the other machine acknowledges nothing for a second, and reconnects
several times a second. A machine that is slow to accept data does not count as silent.

Host names are resolved in separate threads, repeatedly until a connection is established: the
library would resolve them in the one thread that all messages pass through, and a slow DNS server
would silence this replica.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import socket
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from kourou.clock import Clock
from kourou.engine.effects import Forward
from kourou.errors import Code, DecodeError, KourouError, Unavailable, error_from_code
from kourou.model.limits import (
    FORWARDED_BYTES_MAX,
    MEMBER_PIPE_MESSAGES_MAX,
    MEMBER_QUEUE_BYTES_MAX,
)
from kourou.protocol.messages.replication import (
    AskVote,
    ChunkAck,
    FetchLog,
    FetchLogResponse,
    LogChunk,
    StandNow,
    Vote,
)
from kourou.protocol.table import REQUESTS
from kourou.protocol.wire.frames import (
    NO_TRACE,
    FrameKind,
    decode_reply,
    encode_request,
    name_user,
)
from kourou.replication.raft import inputs as raft_inputs
from kourou.replication.raft.inputs import Buffer, Message
from kourou.runtime import MEMBERS, AskClient, Notify, Received, Reply, ReplyTo
from kourou.telemetry.metrics import Family
from kourou.transport.addresses import join_address, split_address
from kourou.transport.curve_keys import ClientCurve
from kourou.transport.pending_requests import Outcome
from kourou.transport.rate_limited_log import RateLimitedLog
from kourou.transport.wire import WireTimeouts
from kourou.transport.zmq_client import ZmqClientStatistics, ZmqConnection

_log = logging.getLogger("kourou.broker")

MESSAGES = (LogChunk, ChunkAck, AskVote, Vote, StandNow)
"""The messages between replicas of a Raft group."""

TALKING = WireTimeouts(
    reconnect_ms_max=100,
    connect_ms=500,
    unread_ms=1_000,
    probe_ms=500,
    silence_ms=5_000,
    pipe_messages=MEMBER_PIPE_MESSAGES_MAX,
)
ASKING = WireTimeouts(reconnect_ms_max=100, connect_ms=500, unread_ms=1_000)

STALE_MS = 1_000
"""A message that waited this long for room in a pipe is dropped: Raft has repeated it by then."""

LOOK_UP_S = 1.0
"""Interval of host name resolution while there is no connection."""

CONNECT_WAIT_MS = 1_000
"""How long a request waits for a connection to its replica."""

FORWARD_MS = 10_000
"""Timeout of a forwarded client request that has no deadline."""

Fetched = Callable[[FetchLogResponse | KourouError, Buffer], None]
"""The result of a fetch: the reply and its bytes, or an error and b""."""


@dataclass(frozen=True, slots=True)
class LinkStatistics:
    """Counters of one connection pair. `dropped`: not connected, or the queue was full."""

    connected: bool
    sent: int
    dropped: int
    waiting_bytes: int
    forwarding: int
    talking: ZmqClientStatistics | None
    asking: ZmqClientStatistics | None


def raft_messages(
    received: list[Received],
) -> tuple[Sequence[raft_inputs.MessageReceived], list[Received]]:
    """Split a burst into Raft messages and all other requests, which are for the core.

    A burst comes from one listener, so a single check suffices for bursts of clients.
    """
    if not received or received[0].to.peer.listener != MEMBERS:
        return (), received
    said: list[raft_inputs.MessageReceived] = []
    rest: list[Received] = []
    for one in received:
        if isinstance(one.request, MESSAGES):
            said.append(raft_inputs.MessageReceived(one.request, _whole(one.body)))
        else:
            rest.append(one)
    return said, rest


class _Link:
    """The connections to one replica. `asking` is opened on first use; `place` is the address.

    `talking` and `asking` are None, and `place` is "", until the host name is resolved.
    """

    __slots__ = (
        *("_clock", "_curve", "_named", "asking", "dropped", "forwarded_bytes", "forwarding"),
        *("place", "sent", "talking"),
    )

    def __init__(self, clock: Clock, named: str, curve: ClientCurve | None) -> None:
        self._clock = clock
        self._named = named
        self._curve = curve
        self.place = ""
        self.talking: ZmqConnection | None = None
        self.asking: ZmqConnection | None = None
        self.sent = self.dropped = self.forwarding = self.forwarded_bytes = 0

    @property
    def connected(self) -> bool:
        return self.talking is not None and self.talking.connected

    def dial(self, place: str) -> None:
        """Connect to `address:port`; requests in flight to an earlier address get no reply."""
        if place == self.place:
            return
        self.close()
        self.place = place
        self.talking = ZmqConnection(
            place, clock=self._clock, timeouts=TALKING, curve=self._curve, named=self._named
        )

    def to_ask(self) -> ZmqConnection | None:
        """Return the connection for requests; None if the address is unknown."""
        if self.asking is None and self.place:
            self.asking = ZmqConnection(
                self.place,
                connect_wait_ms=CONNECT_WAIT_MS,
                clock=self._clock,
                timeouts=ASKING,
                curve=self._curve,
                named=self._named,
            )
        return self.asking

    def close(self) -> None:
        for connection in (self.talking, self.asking):
            if connection is not None:
                connection.close()
        self.talking = self.asking = None

    def statistics(self) -> LinkStatistics:
        talking = self.talking
        return LinkStatistics(
            connected=self.connected,
            sent=self.sent,
            dropped=self.dropped,
            waiting_bytes=0 if talking is None else talking.waiting_bytes,
            forwarding=self.forwarding,
            talking=None if talking is None else talking.statistics(),
            asking=None if self.asking is None else self.asking.statistics(),
        )


class PeerLinks:
    """The connections to all other replicas.

    `peers` may include this replica; `reply` sends a reply to a client. It implements
    ProtocolServer for its metrics; its peers never send requests. All calls must be made on the
    running loop.
    """

    name = "raft"

    def __init__(
        self,
        member: str,
        peers: Mapping[str, str],
        *,
        reply: Callable[[Reply], None],
        clock: Clock,
        curve: ClientCurve | None = None,
    ) -> None:
        self._curve = curve
        self._addresses = {name: address for name, address in peers.items() if name != member}
        self._reply = reply
        self._clock = clock
        self._complaints = RateLimitedLog(_log, clock)
        self._links: dict[str, _Link] = {}
        self._threads: ThreadPoolExecutor | None = None
        self._looking: list[asyncio.Task[None]] = []

    def open(self) -> None:
        """Connect to all replicas, and reconnect until `close`."""
        assert not self._links, "connected already"
        self._links = {
            name: _Link(self._clock, address, self._curve)
            for name, address in self._addresses.items()
        }
        names: dict[str, str] = {}
        for member, address in self._addresses.items():
            if _is_literal(address):
                self._links[member].dial(address)
            else:
                names[member] = address
        if names:
            self._threads = ThreadPoolExecutor(len(names), "kourou-names")
            loop = asyncio.get_running_loop()
            self._looking = [
                loop.create_task(self._find(self._links[member], address, self._threads))
                for member, address in names.items()
            ]

    async def _find(self, link: _Link, address: str, threads: ThreadPoolExecutor) -> None:
        """Resolve the host name whenever there is no connection: the address may have changed."""
        loop = asyncio.get_running_loop()
        while True:
            if not link.connected:
                try:
                    link.dial(await loop.run_in_executor(threads, _place_of, address))
                except (OSError, UnicodeError) as error:
                    self._complaints.warning(
                        "replica-address-unresolved: the address of %(address)s cannot be "
                        "resolved: %(error)s",
                        {"address": address, "error": error},
                        kind=address,
                    )
            await asyncio.sleep(LOOK_UP_S)

    def close(self) -> None:
        """Close all connections. Requests in flight end with an unknown outcome."""
        for looking in self._looking:
            looking.cancel()
        self._looking = []
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)
            self._threads = None
        links, self._links = self._links, {}
        for link in links.values():
            link.close()

    def connected(self, member: str) -> bool:
        """Is it connected, as far as is known?"""
        link = self._links.get(member)
        return link is not None and link.connected

    # -- Raft messages ----------------------------------------------------------------------------

    def send(self, member: str, message: Message, body: Buffer = b"") -> bool:
        """Send a message to a replica; False if it was dropped. Never blocks.

        A body of 128 KiB and more is not copied: the caller must not write to it again.
        """
        link = self._links.get(member)
        if link is None:  # this process stops
            return False
        talking, size = link.talking, len(body)
        if (
            talking is None
            or not talking.connected
            or talking.waiting_bytes + size > MEMBER_QUEUE_BYTES_MAX
        ):
            link.dropped += 1
            return False
        talking.oneway(message, body=(body,) if size else (), timeout_ms=STALE_MS)
        link.sent += 1
        return True

    # -- requests ---------------------------------------------------------------------------------

    def fetch(self, member: str, request: FetchLog, done: Fetched, timeout_ms: int) -> None:
        """Request a replica's log. `done` is called once, perhaps before this returns."""

        def ended(outcome: Outcome) -> None:
            done(*_fetched(outcome))

        link = self._links.get(member)
        asking = None if link is None else link.to_ask()
        if asking is None:
            done(Unavailable(f"the address of {member} is unknown"), b"")
            return
        correlation = asking.next_correlation()
        head = encode_request(request, correlation=correlation, deadline_ms=timeout_ms)
        asking.submit([head], correlation, ended, self._clock.monotonic_ms() + timeout_ms)

    def forward(self, wanted: Forward) -> None:
        """Forward a client's request to the leader.

        A request that was forwarded here is not forwarded again: two replicas that consider each
        other the leader would forward it endlessly.
        """
        link = self._links.get(wanted.member)
        asking = None if link is None else link.to_ask()
        size = sum(map(len, wanted.body))
        now_ms = self._clock.monotonic_ms()
        left_ms = wanted.deadline_ms - now_ms if wanted.deadline_ms else FORWARD_MS
        if link is None or asking is None or wanted.to.peer.listener == MEMBERS:
            self._refuse(wanted.to, f"the leader is {wanted.member}; send the request there")
        elif link.forwarded_bytes + size > FORWARDED_BYTES_MAX:
            self._refuse(
                wanted.to, f"too many requests to {wanted.member} are waiting already", busy=True
            )
        elif left_ms <= 0:
            self._answer(
                wanted.to, Code.DEADLINE_PASSED, "the deadline has passed; nothing was done"
            )
        else:
            self._forward(link, asking, wanted, left_ms)

    def _forward(self, link: _Link, asking: ZmqConnection, wanted: Forward, left_ms: int) -> None:
        to, size = wanted.to, sum(map(len, wanted.body))
        correlation = asking.next_correlation()
        head = encode_request(
            wanted.request,
            correlation=correlation,
            deadline_ms=left_ms,
            trace=to.trace or NO_TRACE,
            kind=FrameKind.ONEWAY if to.oneway else FrameKind.REQUEST,
        )
        if wanted.origin:
            head = name_user(head, wanted.origin)
        deadline_ms = self._clock.monotonic_ms() + left_ms
        if to.oneway:
            asking.submit([head, *wanted.body], correlation, None, deadline_ms)
            return

        def ended(outcome: Outcome) -> None:
            link.forwarded_bytes -= size
            link.forwarding -= 1
            self._reply(_forwarded(wanted, outcome))

        link.forwarded_bytes += size
        link.forwarding += 1
        asking.submit([head, *wanted.body], correlation, ended, deadline_ms)

    def _refuse(self, to: ReplyTo, why: str, *, busy: bool = False) -> None:
        code = Code.SYSTEM_BUSY if busy else Code.SERVICE_NOT_AVAILABLE
        self._answer(to, code, f"{why}; nothing was done")

    def _answer(self, to: ReplyTo, code: Code, remark: str) -> None:
        self._reply(Reply(to, code, remark))

    # -- as a protocol server ---------------------------------------------------------------------

    def reply(self, reply: Reply) -> None:
        """Do nothing: this replica's own connections receive no requests."""

    def notify(self, notice: Notify) -> None:
        """Do nothing: see `reply`."""

    def ask(self, question: AskClient) -> None:
        """Do nothing: see `reply`."""

    def pause(self) -> None:
        """Do nothing: a draining leader needs the connections to transfer leadership."""

    def statistics(self) -> Mapping[str, LinkStatistics]:
        """Return the counters per replica."""
        return {name: link.statistics() for name, link in self._links.items()}

    def families(self, base: Mapping[str, str]) -> list[Family]:
        """Return the connection metrics; `base` are the labels that all samples get."""
        links = [({**base, "peer": name}, link) for name, link in self._links.items()]
        return [
            Family.gauge(
                "kourou_raft_peer_connected",
                samples=[(labels, int(link.connected)) for labels, link in links],
            ),
            Family.counter(
                "kourou_raft_messages_sent_total",
                samples=[(labels, link.sent) for labels, link in links],
            ),
            Family.counter(
                "kourou_raft_messages_dropped_total",
                samples=[(labels, link.dropped) for labels, link in links],
            ),
            Family.gauge(
                "kourou_raft_forwarding",
                samples=[(labels, link.forwarding) for labels, link in links],
            ),
        ]


def _is_literal(address: str) -> bool:
    """Is the host an IP address?"""
    try:
        ipaddress.ip_address(split_address(address)[0])
    except ValueError:
        return False
    return True


def _place_of(address: str) -> str:
    """Resolve a host name to `address:port`. Blocks; raises OSError, UnicodeError."""
    host, port = split_address(address)
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][4][0]
    return join_address(str(found), port)


def _whole(parts: Sequence[Buffer]) -> Buffer:
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _fetched(outcome: Outcome) -> tuple[FetchLogResponse | KourouError, Buffer]:
    if isinstance(outcome, KourouError):
        return outcome, b""
    try:
        code, remark, header = decode_reply(outcome, FetchLogResponse)
    except DecodeError as error:
        return error, b""
    if code != Code.SUCCESS:
        return error_from_code(code, remark), b""
    if not isinstance(header, FetchLogResponse):
        return Unavailable(remark or "the replica sent an empty reply"), b""
    return header, _whole(outcome.body)


def _forwarded(wanted: Forward, outcome: Outcome) -> Reply:
    """Return the leader's reply, or an error reply if there is none."""
    to, member = wanted.to, wanted.member
    try:
        if isinstance(outcome, KourouError):
            raise outcome
        code, remark, header = decode_reply(outcome, REQUESTS[wanted.request.code].response)
    except Unavailable as error:
        remark = f"the leader {member} cannot be reached: {error.message}; nothing was done"
        return Reply(to, Code.SERVICE_NOT_AVAILABLE, remark)
    except KourouError as error:
        remark = f"the reply of the leader {member} was lost: {error.message}"
        return Reply(to, Code.OUTCOME_UNKNOWN, remark)
    return Reply(to, code, remark, header, outcome.body)
