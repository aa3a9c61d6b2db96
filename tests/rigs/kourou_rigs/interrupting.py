"""Raises KeyboardInterrupt after a given number of instructions, as a signal handler may."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


def interrupted_after(instructions: int, work: Callable[[], object]) -> bool:
    """Raise KeyboardInterrupt after so many instructions of `work`; was it not done before?"""
    left = instructions

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal left
        frame.f_trace_opcodes = True
        if event == "opcode":
            left -= 1
            if not left:
                raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    collecting = gc.isenabled()
    gc.disable()  # finalizers of other tests' objects would run inside, and drop the exception
    sys.settrace(trace)
    try:
        work()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
        if collecting:
            gc.enable()
    return False
