"""CPU affinity: parses lists of processor cores, and divides cores between services and filters.

State: none; the kernel keeps the affinity.
"""

from __future__ import annotations

import os
import re
from collections.abc import Set

from kourou.errors import ConfigError

CORE_MAX = 8_191
"""The highest core number that the kernel supports (NR_CPUS)."""

_RANGE = re.compile(r"\s*(\d{1,4})\s*(?:-\s*(\d{1,4})\s*)?", re.ASCII)


def read_cores(key: str, text: str, also: str = "") -> frozenset[int]:
    """Parse a core list such as `1,4-7` (the syntax of taskset(1)), the value of the setting `key`.

    Raises ConfigError if it is invalid; `also` is appended to the hint, for other allowed values.
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
    """Parse a core list.

    Raises ConfigError if it is invalid, or if it names a core that is not in `there`.
    """
    named = read_cores(key, text, also)
    if not named <= there:
        shown, strange = (",".join(map(str, sorted(some))) for some in (there, named - there))
        raise ConfigError(
            f"{key}={text!r} names {strange}, and this process may use {shown}",
            hint="use cores that this process may use, or remove the key",
        )
    return named


def cores_that_compute(there: Set[int]) -> frozenset[int]:
    """Return the cores for filters: all except the first; empty (any) if there is only one."""
    return frozenset(sorted(there)[1:])


def cores_left(there: Set[int]) -> frozenset[int]:
    """Return the cores without filters; all cores if there is only one."""
    return frozenset(there) - cores_that_compute(there)


def keep_process_to(text: str | None) -> None:
    """Restrict this process, and processes that it starts from now on, to these cores; None: any.

    Raises ConfigError.
    """
    if text is not None:
        os.sched_setaffinity(0, cores_named("processCores", text, os.sched_getaffinity(0)))
