"""What all parts of the core share: what time it is, what is to be done, who asked the broker what.

State: soft: the open questions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kourou.protocol.request import Request
from kourou.runtime.effects import LogWarning
from kourou.runtime.inputs import ReplyTo
from kourou_filter_server.effects import AskBroker, Effect
from kourou_filter_server.inputs import BrokerAnswered, Buffer

Then = Callable[[BrokerAnswered], None]

ASK_MS = 5_000
"""How long a question that nobody holds may take."""


class Turn:
    """`now_ms` is monotonic, `wall_ms` the wall clock; both as of the inputs that are handled."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.wall_ms = 0
        self.effects: list[Effect] = []
        self._open: dict[int, Then] = {}
        self._token = 0
        self._wall_ahead_ms = 0

    def begin(self, now_ms: int) -> None:
        """Another turn."""
        self.now_ms = now_ms
        self.wall_ms = now_ms + self._wall_ahead_ms
        self.effects = []

    def clock(self, wall_ms: int) -> None:
        """The wall clock says so now."""
        self._wall_ahead_ms = wall_ms - self.now_ms
        self.wall_ms = wall_ms

    def do(self, effect: Effect) -> None:
        """This is to be done, after what was said before."""
        self.effects.append(effect)

    def warn(self, text: str) -> None:
        """The operator should know."""
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
        """Ask the broker; `then` is called once with what comes of it, unless it is forgotten."""
        self._token += 1
        self._open[self._token] = then
        self.effects.append(AskBroker(self._token, request, body, timeout_ms, to))
        return self._token

    def forget(self, token: int) -> None:
        """Nobody wants to hear the answer any more."""
        self._open.pop(token, None)

    def answered(self, answer: BrokerAnswered) -> None:
        """The broker's answer, or why there is none."""
        then = self._open.pop(answer.token, None)
        if then is not None:
            then(answer)

    @property
    def open_questions(self) -> int:
        """How many answers are waited for."""
        return len(self._open)


def trouble_of(answer: BrokerAnswered) -> str:
    """Why a question was not answered with success; "" if it was."""
    if answer.error is not None:
        return str(answer.error)
    return "" if answer.code == 0 else answer.remark or f"response code {answer.code}"
