"""What this broker has asked its clients, and who waits for the answers.

A question has exactly one end, and whoever asked is told of it once: the client's answer, whatever
its code; TimedOut when its time is up; UnknownOutcome when its connection is gone.

State: soft. Questions of a process that died have no end: whoever asks on account of a request
leaves that request to its own deadline.

Invariants:  a token stands for one question, and only the peer that was asked can answer it
             at most CLIENT_QUESTIONS_MAX are open
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

from kourou.engine.effects import Effect
from kourou.errors import KourouError, Throttled, TimedOut, UnknownOutcome
from kourou.model.limits import CLIENT_QUESTIONS_MAX
from kourou.protocol.request import Request
from kourou.runtime.effects import AskClient, LogWarning
from kourou.runtime.inputs import Buffer, ClientAnswered
from kourou.runtime.peer import Peer

Answered = Callable[[int, ClientAnswered], Sequence[Effect]]
"""(now_ms, answer) -> effects. The answer's `error` is None where the client did answer."""

TOKENS = 2**31 - 1
"""A remoting frame's correlation id has 31 usable bits; ZeroMQ's could be larger."""


@dataclass(slots=True)
class _Question:
    peer: Peer
    request: Request
    answered: Answered


class Asking:
    """The questions that are open. Times are monotonic ms."""

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
        """Ask a client; `answered` is called with the end of it, in this or a later turn.

        Raises Throttled while too many questions are open; then nobody was asked.
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
        """A client answered, or a carrier could not ask it. What nobody waits for is dropped."""
        question = self._open.get(item.token)
        if question is None or question.peer.id != item.peer.id:
            return []
        return self._end(now_ms, item)

    def expire(self, now_ms: int) -> list[Effect]:
        """Whose time is up, is told so."""
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
        """The connection is gone: no answer will come over it."""
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
            self._deadlines.clear()  # those of answered questions are of no use any more
        try:
            return list(question.answered(now_ms, item))
        except KourouError as error:
            # Whoever wanted to know is gone or cannot record it now; the broker goes on.
            what = type(question.request).__name__
            return [LogWarning(f"the reply of {question.peer} to {what} had no effect: {error}")]
