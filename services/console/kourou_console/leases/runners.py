"""Between a group's member in the client library and the leases: how messages cross, both ways.

Without order every message is handed over for itself. In order the library hands over *turns* of a
queue; of each turn one message is lent, and when something became of it the turn is given back, so
the next message of that queue comes after that, and not before.

State: soft.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from typing import Protocol

from kourou.client.handlers import Report
from kourou.client.handover import Handover
from kourou.client.ordered_outcomes import Suspend
from kourou.client.ordered_turns import Turn
from kourou.client.received import ReceivedMessage
from kourou.errors import BadRequest


class Lent(Protocol):
    """A message that was handed over, and its way back. Used on the gateway's loop."""

    @property
    def message(self) -> ReceivedMessage:
        """The message itself."""
        ...

    def may_begin(self) -> bool:
        """May it be handed out now: is its queue ours, and its lock good?"""
        ...

    def counts(self) -> bool:
        """Does it still count here what becomes of it?"""
        ...

    def finish(self) -> None:
        """It was consumed, or the brokers have it again."""
        ...

    def withdraw(self) -> None:
        """Nobody gets it from here any more."""
        ...

    def again(self, attempt: int) -> None:
        """In order only: it comes again after a moment, before everything else of its queue."""
        ...


class _Runner:
    """What both runners have in common."""

    def __init__(self, loop: asyncio.AbstractEventLoop, closed: Callable[[], None]) -> None:
        self._loop = loop
        self._told_closed = closed
        self._closing = False

    def running(self) -> list[ReceivedMessage]:
        """None that has a time limit of the library's: leases have their own."""
        return []

    def times(self) -> list[int]:
        """Nothing is measured here."""
        return []

    async def call(self, item: object) -> BaseException | None:
        """There is no handler to call."""
        raise BadRequest(
            "this consumer leases messages to HTTP clients; it cannot consume a message directly"
        )

    async def close(self, timeout_ms: int) -> bool:
        """What is lent is not waited for: it was not consumed, so it comes again elsewhere."""
        self._closing = True
        with contextlib.suppress(RuntimeError):  # the loop is closed, and with it all leases
            self._loop.call_soon_threadsafe(self._told_closed)
        return True


class _LentMessage:
    """A message of a member without order."""

    __slots__ = ("_report", "message")

    def __init__(self, message: ReceivedMessage, report: Report) -> None:
        self.message = message
        self._report = report

    def may_begin(self) -> bool:
        return self._report.wanted(self.message)

    def counts(self) -> bool:
        return self._report.wanted(self.message)

    def finish(self) -> None:
        self._report.finished(self.message)

    def withdraw(self) -> None:
        """Its window was dropped; there is nobody to tell."""

    def again(self, attempt: int) -> None:
        raise AssertionError("without order a message goes back to the brokers")


class FreeRunner(_Runner):
    """For a member without order."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        report: Report,
        arrived: Callable[[Sequence[Lent]], None],
        closed: Callable[[], None],
    ) -> None:
        super().__init__(loop, closed)
        self._report = report
        self._arrived = arrived
        self._inbox: Handover[ReceivedMessage] = Handover(self._loop, self._take)

    def hand(self, items: Sequence[ReceivedMessage]) -> None:
        """Take messages; on the I/O thread."""
        if not self._closing:
            self._inbox.put_many(list(items))

    def _take(self, items: list[ReceivedMessage]) -> None:
        # Each alone: one message that is held for hours must not keep a whole pull in memory.
        self._arrived([_LentMessage(one.alone(), self._report) for one in items])


class _LentTurn:
    """The first message of a turn."""

    __slots__ = ("_runner", "_turn", "message")

    def __init__(self, message: ReceivedMessage, turn: Turn, runner: TurnRunner) -> None:
        self.message = message
        self._turn = turn
        self._runner = runner

    def may_begin(self) -> bool:
        return self._turn.next() is self.message

    def counts(self) -> bool:
        return not self.message.lease.window.dropped

    def finish(self) -> None:
        self._turn.judge(self.message, None)
        self._runner.end(self._turn, None)

    def withdraw(self) -> None:
        self._runner.end(self._turn, None)

    def again(self, attempt: int) -> None:
        self.message.attempt = attempt
        self._runner.end(self._turn, Suspend())


class TurnRunner(_Runner):
    """For a member that consumes in order."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        report: Report,
        arrived: Callable[[Sequence[Lent]], None],
        closed: Callable[[], None],
    ) -> None:
        super().__init__(loop, closed)
        self._report = report
        self._arrived = arrived
        self._turns: set[Turn] = set()
        self._inbox: Handover[Turn] = Handover(self._loop, self._take)

    def hand(self, items: Sequence[Turn]) -> None:
        """Take turns; on the I/O thread."""
        if not self._closing:
            self._inbox.put_many(list(items))

    def _take(self, turns: list[Turn]) -> None:
        for turn in turns:
            turn.begin()
            message = turn.next()
            if message is None:
                self._report.finished(turn)
            else:
                self._turns.add(turn)
                self._arrived([_LentTurn(message, turn, self)])

    def end(self, turn: Turn, error: BaseException | None) -> None:
        """A turn is given back; once for each."""
        if turn not in self._turns:
            return
        self._turns.discard(turn)
        turn.calling = False
        if error is None:
            self._report.finished(turn)
        else:
            self._report.failed(turn, error)

    async def close(self, timeout_ms: int) -> bool:
        """Nobody works on what is lent any more, as far as this member knows."""
        for turn in list(self._turns):
            turn.calling = False
        return await super().close(timeout_ms)
