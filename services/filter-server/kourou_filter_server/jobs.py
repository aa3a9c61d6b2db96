"""Messages that wait to be judged: one run of records, as far as it is judged.

Invariant: `verdicts` has a byte for each record that is judged, from the first on without a gap.

State: soft.
"""

from __future__ import annotations

from typing import Protocol

from kourou.model.filter import FilterKey
from kourou_filter_server.inputs import Buffer
from kourou_filter_server.records import bounds_of


class Owner(Protocol):
    """Who wants a run judged. One of `judged` and `refused` is called, once, or it is cancelled."""

    def judged(self, job: Job) -> None:
        """There is a verdict for every record."""
        ...

    def stuck(self, job: Job, kind: str, reason: str) -> bool:
        """The record behind the last verdict cannot be judged.

        True: go on, the owner has put a verdict of its own. False: the owner has seen enough.
        """
        ...

    def refused(self, job: Job, kind: str, reason: str) -> None:
        """The filter cannot run."""
        ...


class Suspicion:
    """A worker ended over a batch; whose fault that was is found out message by message."""

    __slots__ = ("at_ms", "found", "kind", "open", "version")

    def __init__(self, kind: str, at_ms: int, version: int, open_jobs: int) -> None:
        self.kind = kind
        self.at_ms = at_ms
        self.version = version
        self.open = open_jobs
        self.found = False


class Job:
    """One run to be judged by the filter `key`. Raises DecodeError if it is none.

    Its records before number `alone_to` are tried one by one, since a worker ended over them.
    `version` is the one that judged so far, `micros` the time it used. `noted` are the records (by
    number, kind, reason) that could not be judged and are passed over by policy; `unfiltered` is
    how many go through by it.
    """

    __slots__ = (
        *("alone_to", "bounds", "cancelled", "key", "micros", "noted"),
        *("owner", "run", "suspicion", "topic", "unfiltered", "verdicts", "version"),
    )

    def __init__(self, owner: Owner, key: FilterKey, topic: str, run: Buffer) -> None:
        self.owner = owner
        self.key = key
        self.topic = topic
        self.run = memoryview(run)
        self.bounds = bounds_of(self.run)
        self.verdicts = bytearray()
        self.version = 0
        self.micros = 0
        self.alone_to = 0
        self.suspicion: Suspicion | None = None
        self.cancelled = False
        self.noted: list[tuple[int, str, str]] = []
        self.unfiltered = 0

    @property
    def count(self) -> int:
        """How many records it has."""
        return len(self.bounds) - 1

    @property
    def left(self) -> int:
        """How many of them have no verdict."""
        return len(self.bounds) - 1 - len(self.verdicts)

    @property
    def alone(self) -> bool:
        """Is the next record to be tried by itself?"""
        return len(self.verdicts) < self.alone_to

    def next_count(self, messages: int, size_bytes: int) -> int:
        """How many of the next records are within these limits; perhaps none."""
        if self.alone:
            messages = min(messages, 1)
        at = len(self.verdicts)
        count = min(messages, len(self.bounds) - 1 - at)
        bounds, begin = self.bounds, self.bounds[at]
        while count and bounds[at + count] - begin > size_bytes:
            count -= 1 if count < 16 else count // 4
        return count

    def piece(self, count: int) -> memoryview:
        """The next `count` records."""
        at = len(self.verdicts)
        return self.run[self.bounds[at] : self.bounds[at + count]]

    def begin_again(self, version: int) -> None:
        """Another version judges from now on: an answer is the work of one."""
        self.version = version
        self.verdicts.clear()
        self.noted.clear()
        self.unfiltered = 0
        self.micros = 0
        self.alone_to = 0
        self.suspicion = None
