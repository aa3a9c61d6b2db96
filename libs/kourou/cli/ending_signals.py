"""SIGTERM and SIGHUP end a command as Ctrl-C does: its processes end, its folders are removed.

State: soft.
"""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any, Self

NUMBERS = (signal.SIGTERM, signal.SIGHUP)
EXIT_BY_SIGNAL = 128
"""A shell gives this and the signal's number for a process that a signal ended."""


class EndingSignals:
    """`with EndingSignals() as ending:`; `ending.number` is the signal that came, if one did.

    A signal that is ignored stays so (nohup). Only the first one counts: a closed terminal sends
    several, and they must not break off the tidying that the first has begun.
    """

    __slots__ = ("_before", "number")

    def __init__(self) -> None:
        self.number: signal.Signals | None = None
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():  # nobody else may set handlers
            for number in NUMBERS:
                if signal.getsignal(number) is signal.SIG_DFL:
                    self._before[number] = signal.signal(number, self._end)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def exit_code(self, otherwise: int) -> int:
        """What the process ends with."""
        return otherwise if self.number is None else EXIT_BY_SIGNAL + self.number

    def _end(self, number: int, frame: FrameType | None) -> None:
        if self.number is not None:
            return
        self.number = signal.Signals(number)
        # Whoever takes Ctrl-C now (asyncio, while a loop runs) ends what is under way in order.
        taker = signal.getsignal(signal.SIGINT)
        if callable(taker):
            taker(signal.SIGINT, frame)
            return
        raise KeyboardInterrupt  # in the background of a script Ctrl-C is ignored
