"""Requests from this broker to its clients, and the callbacks for their replies.

A request ends exactly once, and its callback is called once: with the client's reply, whatever its
code; with TimedOut after its timeout; with UnknownOutcome if the connection is closed.

State: soft. Requests that are open at a crash have no outcome. A caller that sends one on behalf of
another request leaves that request to its own deadline.

Invariants:
- a token identifies one request, and only the peer that received the request can reply to it
- at most CLIENT_QUESTIONS_MAX requests are open
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

from kourou.engine.effects import Effect
from kourou.errors import KourouError, Throttled, TimedOut, UnknownOutcome
from kourou.model.limits import CLIENT_QUESTIONS_MAX
from kourou.protocol.request import Request
from kourou.runtime.core import AskClient, Buffer, ClientAnswered, LogWarning, Peer

Answered = Callable[[int, ClientAnswered], Sequence[Effect]]
"""(now_ms, answer) -> effects. The answer's `error` is None if the client replied."""

TOKENS = 2**31 - 1
"""A remoting frame's correlation ID has 31 usable bits; ZeroMQ's could be larger."""


@dataclass(slots=True)
class _Question:
    peer: Peer
    request: Request
    answered: Answered


class Asking:
    """The open requests. Times are monotonic ms."""

    __slots__ = ("_by_peer", "_deadlines", "_last_token", "_open")

    def __init__(self) -> None:
        self._last_token = 0
        self._open: dict[int, _Question] = {}
        self._by_peer: dict[int, dict[int, None]] = {}
        self._deadlines: list[tuple[int, int]] = []

    def __len__(self) -> int:
        return len(self._open)

    def ask(
        self,
        now_ms: int,
        peer: Peer,
        request: Request,
        body: Sequence[Buffer] = (),
        *,
        timeout_ms: int,
        answered: Answered,
    ) -> list[Effect]:
        """Send a request to a client; `answered` gets its outcome, in this or a later tick.

        Raises Throttled while too many requests are open; then nothing is sent.
        """
        if len(self._open) >= CLIENT_QUESTIONS_MAX:
            raise Throttled(
                f"{CLIENT_QUESTIONS_MAX} requests to clients are in progress already, the "
                "maximum; retry in a moment"
            )
        token = self._last_token % TOKENS + 1
        while token in self._open:
            token = token % TOKENS + 1
        self._last_token = token
        self._open[token] = _Question(peer, request, answered)
        self._by_peer.setdefault(peer.id, {})[token] = None
        heappush(self._deadlines, (now_ms + timeout_ms, token))
        return [AskClient(token, peer, request, body, timeout_ms)]

    def answered(self, now_ms: int, item: ClientAnswered) -> list[Effect]:
        """Handle a client's reply, or a failure to send; without an open request, drop it."""
        question = self._open.get(item.token)
        if question is None or question.peer.id != item.peer.id:
            return []
        return self._end(now_ms, item)

    def expire(self, now_ms: int) -> list[Effect]:
        """End the requests whose deadline has passed with TimedOut."""
        effects: list[Effect] = []
        deadlines = self._deadlines
        while deadlines and deadlines[0][0] <= now_ms:
            _, token = heappop(deadlines)
            question = self._open.get(token)
            if question is not None:
                late = TimedOut(f"{question.peer} did not respond in time")
                effects += self._fail(now_ms, token, question, late)
        return effects

    def drop_peer(self, now_ms: int, peer: Peer) -> list[Effect]:
        """End the requests to this peer, because a closed connection brings no reply."""
        effects: list[Effect] = []
        for token in list(self._by_peer.get(peer.id, ())):
            gone = UnknownOutcome(f"the connection to {peer} closed before it replied")
            effects += self._fail(now_ms, token, self._open[token], gone)
        return effects

    def _fail(
        self, now_ms: int, token: int, question: _Question, error: KourouError
    ) -> list[Effect]:
        return self._end(now_ms, ClientAnswered(token, question.peer, error=error))

    def _end(self, now_ms: int, item: ClientAnswered) -> list[Effect]:
        question = self._open.pop(item.token)
        tokens = self._by_peer[question.peer.id]
        del tokens[item.token]
        if not tokens:
            del self._by_peer[question.peer.id]
        if not self._open:
            self._deadlines.clear()  # the rest are deadlines of finished requests
        try:
            return list(question.answered(now_ms, item))
        except KourouError as error:
            # The requester is gone or cannot record the reply now; the broker continues.
            what = type(question.request).__name__
            return [LogWarning(f"the reply of {question.peer} to {what} had no effect: {error}")]
