"""SIGTERM and SIGHUP end a command like Ctrl-C: it ends its processes and removes its folders.

State: soft.
"""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any, Self

NUMBERS = (signal.SIGTERM, signal.SIGHUP)
EXIT_BY_SIGNAL = 128
"""Shells report this plus the signal's number for a process that was ended by a signal."""


class EndingSignals:
    """`with EndingSignals() as ending:`; `ending.number` is the signal that was received, if any.

    Ignored signals stay ignored (nohup). Only the first signal counts: a closed terminal sends
    several, which must not interrupt the cleanup that the first one started.
    """

    __slots__ = ("_before", "number")

    def __init__(self) -> None:
        self.number: signal.Signals | None = None
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():  # else handlers cannot be set
            for number in NUMBERS:
                if signal.getsignal(number) is signal.SIG_DFL:
                    self._before[number] = signal.signal(number, self._end)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def exit_code(self, otherwise: int) -> int:
        """The exit code of the process."""
        return otherwise if self.number is None else EXIT_BY_SIGNAL + self.number

    def _end(self, number: int, frame: FrameType | None) -> None:
        if self.number is not None:
            return
        self.number = signal.Signals(number)
        # The current handler of Ctrl-C (asyncio, while a loop runs) ends running work in order.
        taker = signal.getsignal(signal.SIGINT)
        if callable(taker):
            taker(signal.SIGINT, frame)
            return
        raise KeyboardInterrupt  # background jobs of a script ignore Ctrl-C
