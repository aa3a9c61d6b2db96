"""The links of a Raft group's member to all others.

State: soft.

Messages of Raft go one way over one connection, questions that are answered (FETCH_LOG, clients'
requests) over another: a question that times out resets its connection, and a vote must not pay for
it. An answer to a message is a message of its own, over the link of who answers.

What cannot be said at once is not said: Raft repeats. So nothing is kept for a member that is not
connected; one that is connected and reads nothing (its process is stopped) costs at most
MEMBER_PIPE_MESSAGES_MAX messages in the library and MEMBER_QUEUE_BYTES_MAX bytes behind them, until
its connection is given up.

An election is over within a second or two, so silence is noticed far sooner than clients do:
`TALKING` gives up a connection when the other machine takes nothing for a second, and tries another
one several times a second. It does not count what a machine is slow to take.

Names of hosts are looked up in threads of their own, again and again while nobody answers: the
library would look them up in the one thread through which all messages go, and a name server of
the network that is slow would silence this member.
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
from kourou.protocol.frames import NO_TRACE, decode_reply, encode_request
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
from kourou.replication.raft import inputs as happened
from kourou.replication.raft.inputs import Buffer, Message
from kourou.runtime.effects import AskClient, Notify, Reply
from kourou.runtime.inputs import Received, ReplyTo
from kourou.runtime.peer import MEMBERS
from kourou.telemetry.metrics import Family
from kourou.transport.addresses import join_address, split_address
from kourou.transport.curve import ClientCurve
from kourou.transport.pending_requests import Outcome
from kourou.transport.rate_limited_log import RateLimitedLog
from kourou.transport.wire import Patience
from kourou.transport.zmq_client import ZmqClientStatistics, ZmqConnection

_log = logging.getLogger("kourou.broker")

MESSAGES = (LogChunk, ChunkAck, AskVote, Vote, StandNow)
"""What members of a Raft group say to one another."""

TALKING = Patience(
    reconnect_ms_max=100,
    connect_ms=500,
    unread_ms=1_000,
    probe_ms=500,
    silence_ms=5_000,
    pipe_messages=MEMBER_PIPE_MESSAGES_MAX,
)
ASKING = Patience(reconnect_ms_max=100, connect_ms=500, unread_ms=1_000)

STALE_MS = 1_000
"""What has waited so long for room in a pipe is dropped: by then Raft has said it again."""

LOOK_UP_S = 1.0
"""How often the name of a host is looked up while there is no connection to it."""

CONNECT_WAIT_MS = 1_000
"""So long a question waits for a connection to the member that it is for."""

FORWARD_MS = 10_000
"""A client that states no deadline is given up after so long."""

Fetched = Callable[[FetchLogResponse | KourouError, Buffer], None]
"""What becomes of a fetch: the answer and its bytes, or why there is none and b""."""


@dataclass(frozen=True, slots=True)
class LinkStatistics:
    """What one link has done. `dropped`: nobody was connected, or too much waited already."""

    connected: bool
    sent: int
    dropped: int
    waiting_bytes: int
    forwarding: int
    talking: ZmqClientStatistics | None
    asking: ZmqClientStatistics | None


def raft_messages(
    received: list[Received],
) -> tuple[Sequence[happened.Received], list[Received]]:
    """One burst: what members of a Raft group say, for the member; and the rest, for the core.

    A burst comes from one listener, so one look is enough for those of clients.
    """
    if not received or received[0].to.peer.listener != MEMBERS:
        return (), received
    said: list[happened.Received] = []
    rest: list[Received] = []
    for one in received:
        if isinstance(one.request, MESSAGES):
            said.append(happened.Received(one.request, _whole(one.body)))
        else:
            rest.append(one)
    return said, rest


class _Link:
    """To one member. `asking` is opened when there is something to ask; `place` is where it is.

    Both are None, and `place` is "", while the name of its host is not known.
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
        """It is there now, `address:port`; what waited for an answer elsewhere gets none."""
        if place == self.place:
            return
        self.close()
        self.place = place
        self.talking = ZmqConnection(
            place, clock=self._clock, patience=TALKING, curve=self._curve, named=self._named
        )

    def to_ask(self) -> ZmqConnection | None:
        """None while nobody knows where it is."""
        if self.asking is None and self.place:
            self.asking = ZmqConnection(
                self.place,
                connect_wait_ms=CONNECT_WAIT_MS,
                clock=self._clock,
                patience=ASKING,
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
    """To all other members. `peers` may name this one as well; `reply` answers a client.

    It implements kourou.service.carrier.Carrier for its figures; no peer of its own ever asks. All
    calls belong on the running loop.
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
        """Dial everybody, from now on, again and again."""
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
        """Look up where the host is, as long as nobody answers: it may have moved."""
        loop = asyncio.get_running_loop()
        while True:
            if not link.connected:
                try:
                    link.dial(await loop.run_in_executor(threads, _place_of, address))
                except (OSError, UnicodeError) as error:
                    self._complaints.warning(
                        address, "the address of %s cannot be resolved: %s", address, error
                    )
            await asyncio.sleep(LOOK_UP_S)

    def close(self) -> None:
        """Say nothing more. Who waits for an answer gets one: nobody knows what became of it."""
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
        """Does a connection to it stand, as far as is known?"""
        link = self._links.get(member)
        return link is not None and link.connected

    # -- messages ---------------------------------------------------------------------------------

    def send(self, member: str, message: Message, body: Buffer = b"") -> bool:
        """Say something to a member; False if it was dropped. Never waits.

        A body of 128 KiB and more is not copied: whoever passes it must not write to it again.
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

    # -- questions --------------------------------------------------------------------------------

    def fetch(self, member: str, request: FetchLog, done: Fetched, timeout_ms: int) -> None:
        """Ask a member for its log. `done` is called once, perhaps before this returns."""

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
        """Have the leader answer a client's request.

        A request that a member has brought here goes no further: two that take each other for the
        leader would send it to and fro.
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
        trace = to.trace or NO_TRACE
        if to.oneway:
            asking.oneway(wanted.request, body=wanted.body, timeout_ms=left_ms, trace=trace)
            return

        def ended(outcome: Outcome) -> None:
            link.forwarded_bytes -= size
            link.forwarding -= 1
            self._reply(_forwarded(wanted, outcome))

        correlation = asking.next_correlation()
        head = encode_request(
            wanted.request, correlation=correlation, deadline_ms=left_ms, trace=trace
        )
        link.forwarded_bytes += size
        link.forwarding += 1
        deadline_ms = self._clock.monotonic_ms() + left_ms
        asking.submit([head, *wanted.body], correlation, ended, deadline_ms)

    def _refuse(self, to: ReplyTo, why: str, *, busy: bool = False) -> None:
        code = Code.SYSTEM_BUSY if busy else Code.SERVICE_NOT_AVAILABLE
        self._answer(to, code, f"{why}; nothing was done")

    def _answer(self, to: ReplyTo, code: Code, remark: str) -> None:
        self._reply(Reply(to, code, remark))

    # -- as a carrier -----------------------------------------------------------------------------

    def reply(self, reply: Reply) -> None:
        """Nobody asks over a link of this member's own."""

    def notify(self, notice: Notify) -> None:
        """Likewise."""

    def ask(self, question: AskClient) -> None:
        """Likewise."""

    def pause(self) -> None:
        """Members are spoken to until the end: a leader that drains gives the lead away."""

    def statistics(self) -> Mapping[str, LinkStatistics]:
        """By member."""
        return {name: link.statistics() for name, link in self._links.items()}

    def families(self, base: Mapping[str, str]) -> list[Family]:
        """The links' metrics; `base` are the labels that go with all."""
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
    """Is the host an address already?"""
    try:
        ipaddress.ip_address(split_address(address)[0])
    except ValueError:
        return False
    return True


def _place_of(address: str) -> str:
    """`address:port` of a host by its name. Blocks; raises OSError, UnicodeError."""
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
    """The leader's answer, or what is to be said where none came."""
    to, member = wanted.to, wanted.member
    try:
        if isinstance(outcome, KourouError):
            raise outcome
        code, remark, header = decode_reply(outcome, REQUESTS[wanted.request.code].response)
    except Unavailable as error:
        told = f"the leader {member} cannot be reached: {error.message}; nothing was done"
        return Reply(to, Code.SERVICE_NOT_AVAILABLE, told)
    except KourouError as error:
        told = f"the reply of the leader {member} was lost: {error.message}"
        return Reply(to, Code.OUTCOME_UNKNOWN, told)
    return Reply(to, code, remark, header, outcome.body)
