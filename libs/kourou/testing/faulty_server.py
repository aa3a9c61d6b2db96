"""A broker's listener that drops, delays or disconnects requests and replies for a test.

Faults apply on the broker's side, after a request has left the network: a dropped request was sent,
and a dropped reply belongs to a request that was handled. Clients of all kinds therefore see the
same faults.

State: soft. Everything runs on the broker's event loop.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from kourou.errors import BadRequest
from kourou.protocol.messages.groups import HeartBeat
from kourou.protocol.messages.pulls import PullMessage, UpdateConsumerOffset
from kourou.protocol.messages.sends import SendMessage, SendRecords
from kourou.protocol.request import Request
from kourou.protocol.wire.frames import Frame, FrameKind, decode_frame
from kourou.runtime import Peer
from kourou.transport.tcp_link import Buffer
from kourou.transport.zmq_server import Inbound, ZmqServer

What = str | type[Request] | None
"""The requests that a fault affects: a word of WORDS, a request type, or None for all."""

WORDS: dict[str, tuple[type[Request], ...]] = {
    "send": (SendRecords, SendMessage),
    "pull": (PullMessage,),
    "commit": (UpdateConsumerOffset,),
    "heartbeat": (HeartBeat,),
}


def codes_of(what: What) -> frozenset[int] | None:
    """The affected request codes, None for all; raises BadRequest for an unknown word."""
    if what is None:
        return None
    if isinstance(what, str):
        if what not in WORDS:
            raise BadRequest(
                f"{what!r} is not a kind of request", hint=f"known: {', '.join(WORDS)}"
            )
        return frozenset(one.code for one in WORDS[what])
    return frozenset((what.code,))


class FaultKind(Enum):
    """What happens to a frame."""

    LOST = "lost"
    CUT = "cut"  # lost, and its connection is closed
    LATE = "late"


@dataclass(slots=True)
class Fault:
    """A fault. `times` counts down, None is unlimited; `late_s` is in time of the event loop.

    With `answers` False it affects incoming requests, with True the replies to them.
    """

    kind: FaultKind
    codes: frozenset[int] | None
    answers: bool
    times: int | None
    late_s: float = 0.0
    met: int = 0

    def meets(self, code: int, *, answer: bool) -> bool:
        """True if the fault affects this frame, which it then counts."""
        if answer is not self.answers or self.times == 0:
            return False
        if self.codes is not None and code not in self.codes:
            return False
        self.met += 1
        if self.times is not None:
            self.times -= 1
        return True


class FaultyServer(ZmqServer):
    """A ZmqServer with faults; without faults it is a plain one."""

    def __init__(
        self,
        bind_address: str,
        on_frames: Callable[[list[Inbound]], None],
        on_disconnect: Callable[[Peer], None],
        **options: Any,
    ) -> None:
        super().__init__(bind_address, self._on_batch, self._forget, **options)
        self.faults: list[Fault] = []
        self._pass_on = on_frames
        self._notify_lost = on_disconnect
        self._asked: defaultdict[int, dict[int, int]] = defaultdict(dict)
        self._late: set[asyncio.TimerHandle] = set()

    def cut_connections(self) -> int:
        """Close all open connections; returns their number."""
        links = list(self._links.values())
        for link in links:
            self._cut_off(link, "ordered by a test")
        return len(links)

    def close(self) -> None:
        """Unbind; delayed frames are dropped."""
        for timer in self._late:
            timer.cancel()
        self._late.clear()
        super().close()

    # -- in ---------------------------------------------------------------------------------------

    def _on_batch(self, batch: list[Inbound]) -> None:
        arrived = [one for one in batch if self._arrives(one)]
        if arrived:
            self._pass_on(arrived)

    def _arrives(self, inbound: Inbound) -> bool:
        frame, peer = inbound.frame, inbound.peer
        if frame.kind is FrameKind.REPLY:
            return True
        for fault in self.faults:
            if fault.meets(frame.code, answer=False):
                if fault.kind is FaultKind.LATE:
                    self._later(fault.late_s, lambda: self._deliver_noted(inbound))
                elif fault.kind is FaultKind.CUT:
                    self._cut_peer(peer)
                return False
        self._note(peer, frame)
        return True

    def _deliver_noted(self, inbound: Inbound) -> None:
        self._note(inbound.peer, inbound.frame)
        self._pass_on([inbound])

    def _note(self, peer: Peer, frame: Frame) -> None:
        """Remember the code of the request, because a reply has only its correlation number."""
        if frame.kind is FrameKind.REQUEST and peer.id in self._links:
            self._asked[peer.id][frame.correlation] = frame.code

    # -- out --------------------------------------------------------------------------------------

    def send(self, peer: Peer, parts: Sequence[Buffer]) -> bool:
        """Send one message unless a fault affects it."""
        frame = decode_frame([parts[0]])
        if frame.kind is FrameKind.REPLY:
            code = self._asked[peer.id].pop(frame.correlation, 0)
            for fault in self.faults:
                if fault.meets(code, answer=True):
                    return self._apply(fault, peer, parts)
        return super().send(peer, parts)

    def _apply(self, fault: Fault, peer: Peer, parts: Sequence[Buffer]) -> bool:
        if fault.kind is FaultKind.LATE:
            whole = [bytes(part) for part in parts]
            self._later(fault.late_s, lambda: ZmqServer.send(self, peer, whole))
        elif fault.kind is FaultKind.CUT:
            self._cut_peer(peer)
        return True

    # -- both -------------------------------------------------------------------------------------

    def _later(self, seconds: float, work: Callable[[], object]) -> None:
        def run() -> None:
            self._late.discard(timer)
            work()

        timer = asyncio.get_running_loop().call_later(seconds, run)
        self._late.add(timer)

    def _cut_peer(self, peer: Peer) -> None:
        link = self._links.get(peer.id)
        if link is not None:
            self._cut_off(link, "ordered by a test")

    def _forget(self, peer: Peer) -> None:
        self._asked.pop(peer.id, None)
        self._notify_lost(peer)
