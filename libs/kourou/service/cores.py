"""Which processor cores a process keeps to: lists of them, and how they are divided.

State: none; the kernel keeps what is set.
"""

from __future__ import annotations

import os
import re
from collections.abc import Set

from kourou.errors import ConfigError

CORE_MAX = 8_191
"""The kernel has no more of them (NR_CPUS)."""

_RANGE = re.compile(r"\s*(\d{1,4})\s*(?:-\s*(\d{1,4})\s*)?", re.ASCII)


def read_cores(key: str, text: str, also: str = "") -> frozenset[int]:
    """The cores of a list such as `1,4-7`, as taskset(1) has it, that the setting `key` names.

    Raises ConfigError for what is none; `also` says what else may stand there.
    """
    found: set[int] = set()
    for part in text.split(","):
        matched = _RANGE.fullmatch(part)
        low = int(matched[1]) if matched else 1
        high = int(matched[2] or low) if matched else 0
        if not low <= high <= CORE_MAX:
            raise ConfigError(f"{key}={text!r} is not a list of cores", hint=f"1,4-7{also}")
        found.update(range(low, high + 1))
    return frozenset(found)


def cores_named(key: str, text: str, there: Set[int], also: str = "") -> frozenset[int]:
    """Those of a list. Raises ConfigError for no list, and if one of them is not `there`."""
    named = read_cores(key, text, also)
    if not named <= there:
        shown, strange = (",".join(map(str, sorted(some))) for some in (there, named - there))
        raise ConfigError(
            f"{key}={text!r} names {strange}, and this process may use {shown}",
            hint="use cores that this process may use, or remove the key",
        )
    return named


def cores_that_compute(there: Set[int]) -> frozenset[int]:
    """Those for filters: all but the first; empty, which is any, where there is one only."""
    return frozenset(sorted(there)[1:])


def cores_left(there: Set[int]) -> frozenset[int]:
    """Those on which no filter computes; all of them where there is one only."""
    return frozenset(there) - cores_that_compute(there)


def keep_process_to(text: str | None) -> None:
    """Let this process, and what it starts from now on, run on these cores only; None: on any.

    Raises ConfigError.
    """
    if text is not None:
        os.sched_setaffinity(0, cores_named("processCores", text, os.sched_getaffinity(0)))
