"""Shared by all components of the core: the current time, the effects, the requests to the broker.

State: soft: the pending requests.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kourou.protocol.request import Request
from kourou.runtime.core import LogWarning, ReplyTo
from kourou_filter_server.effects import AskBroker, Effect
from kourou_filter_server.inputs import BrokerAnswered, Buffer

Then = Callable[[BrokerAnswered], None]

ASK_MS = 5_000
"""The timeout of a request that is no long poll."""


class Turn:
    """`now_ms` is monotonic, `wall_ms` the wall clock; both as of the current inputs."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.wall_ms = 0
        self.effects: list[Effect] = []
        self._open: dict[int, Then] = {}
        self._token = 0
        self._wall_ahead_ms = 0

    def begin(self, now_ms: int) -> None:
        """Start a new iteration of the loop, with no effects."""
        self.now_ms = now_ms
        self.wall_ms = now_ms + self._wall_ahead_ms
        self.effects = []

    def clock(self, wall_ms: int) -> None:
        """Set the wall clock."""
        self._wall_ahead_ms = wall_ms - self.now_ms
        self.wall_ms = wall_ms

    def do(self, effect: Effect) -> None:
        """Append an effect."""
        self.effects.append(effect)

    def warn(self, text: str) -> None:
        """Log a warning."""
        self.effects.append(LogWarning(text))

    def ask(
        self,
        request: Request,
        then: Then,
        *,
        body: Sequence[Buffer] = (),
        timeout_ms: int = ASK_MS,
        to: ReplyTo | None = None,
    ) -> int:
        """Send a request to the broker. `then` is called once with the result, unless forgotten.

        Returns the token of the request.
        """
        self._token += 1
        self._open[self._token] = then
        self.effects.append(AskBroker(self._token, request, body, timeout_ms, to))
        return self._token

    def forget(self, token: int) -> None:
        """Ignore the reply to a request."""
        self._open.pop(token, None)

    def answered(self, answer: BrokerAnswered) -> None:
        """Process the broker's reply, or the failure of a request."""
        then = self._open.pop(answer.token, None)
        if then is not None:
            then(answer)

    @property
    def open_questions(self) -> int:
        """The number of pending requests."""
        return len(self._open)


def trouble_of(answer: BrokerAnswered) -> str:
    """Why a request failed; "" if it succeeded."""
    if answer.error is not None:
        return str(answer.error)
    return "" if answer.code == 0 else answer.remark or f"response code {answer.code}"
