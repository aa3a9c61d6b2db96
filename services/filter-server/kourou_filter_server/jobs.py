"""A job: one run of consecutive records to filter, and the results so far.

Invariant: `results` has a byte for each evaluated record, from the first one without a gap.

State: soft.
"""

from __future__ import annotations

import struct
from typing import Protocol

from kourou.errors import DecodeError
from kourou.model.filter import FilterKey
from kourou.model.limits import RECORD_FIXED_BYTES
from kourou.protocol.record.layout import QUEUE_OFFSET_AT
from kourou_filter_server.interface import Buffer

# -- the records of a run -------------------------------------------------------------------------

NO, YES = 0, 1
"""Filter results."""

_SIZE = struct.Struct(">i")
_OFFSET = struct.Struct(">q")


def bounds_of(run: Buffer) -> list[int]:
    """The start of each record, and the end of the run as the last element.

    Raises DecodeError if the record sizes do not add up to the end of the run.
    """
    unpack, end, at = _SIZE.unpack_from, len(run), 0
    last = end - RECORD_FIXED_BYTES
    bounds = [0]
    while at <= last:
        size = unpack(run, at)[0]
        if size < RECORD_FIXED_BYTES:
            raise DecodeError(f"the record of {size} bytes at {at} is invalid")
        at += size
        bounds.append(at)
    if at != end:
        raise DecodeError(f"the last record ends at {at}, but the records end at {end}")
    return bounds


def offset_of(run: Buffer, at: int) -> int:
    """The queue offset of the record that starts at `at`."""
    return int(_OFFSET.unpack_from(run, at + QUEUE_OFFSET_AT)[0])


# -- jobs -----------------------------------------------------------------------------------------


class Owner(Protocol):
    """The owner of a job. `evaluated` or `refused` is called once, unless the job is cancelled."""

    def evaluated(self, job: FilterJob) -> None:
        """Every record has a result."""
        ...

    def stuck(self, job: FilterJob, kind: str, reason: str) -> bool:
        """The record after the last result cannot be evaluated.

        True: continue, the owner has added a result of its own. False: the job is finished.
        """
        ...

    def refused(self, job: FilterJob, kind: str, reason: str) -> None:
        """The filter cannot run."""
        ...


class CrashSearch:
    """A worker ended during a batch; its messages are evaluated one by one to find the cause."""

    __slots__ = ("at_ms", "found", "kind", "open", "version")

    def __init__(self, kind: str, at_ms: int, version: int, open_jobs: int) -> None:
        self.kind = kind
        self.at_ms = at_ms
        self.version = version
        self.open = open_jobs
        self.found = False


class FilterJob:
    """One run for the filter `key`. Raises DecodeError if the bytes are not a run of records.

    Its records before number `alone_to` are evaluated one by one, because a worker ended during
    their batch. `version` is the filter version of the results so far, `micros` the time it used.
    `noted` are the records (number, kind, reason) that could not be evaluated and are skipped by
    policy; `unfiltered` is the number of records that pass by policy.
    """

    __slots__ = (
        *("alone_to", "bounds", "cancelled", "key", "micros", "noted"),
        *("owner", "run", "crash_search", "topic", "unfiltered", "results", "version"),
    )

    def __init__(self, owner: Owner, key: FilterKey, topic: str, run: Buffer) -> None:
        self.owner = owner
        self.key = key
        self.topic = topic
        self.run = memoryview(run)
        self.bounds = bounds_of(self.run)
        self.results = bytearray()
        self.version = 0
        self.micros = 0
        self.alone_to = 0
        self.crash_search: CrashSearch | None = None
        self.cancelled = False
        self.noted: list[tuple[int, str, str]] = []
        self.unfiltered = 0

    @property
    def count(self) -> int:
        """The number of records."""
        return len(self.bounds) - 1

    @property
    def left(self) -> int:
        """The number of records without a result."""
        return len(self.bounds) - 1 - len(self.results)

    @property
    def alone(self) -> bool:
        """Whether the next record must be evaluated alone."""
        return len(self.results) < self.alone_to

    def next_count(self, messages: int, size_bytes: int) -> int:
        """How many of the next records are within these limits; may be 0."""
        if self.alone:
            messages = min(messages, 1)
        at = len(self.results)
        count = min(messages, len(self.bounds) - 1 - at)
        bounds, begin = self.bounds, self.bounds[at]
        while count and bounds[at + count] - begin > size_bytes:
            count -= 1 if count < 16 else count // 4
        return count

    def piece(self, count: int) -> memoryview:
        """The bytes of the next `count` records."""
        at = len(self.results)
        return self.run[self.bounds[at] : self.bounds[at + count]]

    def begin_again(self, version: int) -> None:
        """Restart with another version: a reply contains results of one version only."""
        self.version = version
        self.results.clear()
        self.noted.clear()
        self.unfiltered = 0
        self.micros = 0
        self.alone_to = 0
        self.crash_search = None
