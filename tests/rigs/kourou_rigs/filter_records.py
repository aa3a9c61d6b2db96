"""Fake stored records for filter servers, and what simulated filters do with them.

    size, …, queue offset, …, wanted, does

`wanted` has one bit for even and one for odd filter versions. `does` is the fault that a message
triggers in odd versions; even versions have none.

State: none, except for the notes of a run.
"""

from __future__ import annotations

import struct
from collections import Counter
from dataclasses import dataclass, field
from enum import IntEnum

from kourou.model.filter import FilterPolicy
from kourou.model.limits import RECORD_FIXED_BYTES
from kourou.protocol.record.layout import QUEUE_OFFSET_AT

_WANTED_AT, _DOES_AT = RECORD_FIXED_BYTES, RECORD_FIXED_BYTES + 1


class Does(IntEnum):
    """The fault that a message triggers in an odd version."""

    NOTHING = 0
    RAISE = 1
    DIE = 2
    TIMEOUT = 3
    LIE = 4
    MEMORY = 5


def fake_record(offset: int, wanted: int, does: Does, size: int) -> bytes:
    """The parts of a stored record that a filter server reads; `wanted` has a bit per parity."""
    record = bytearray(size)
    struct.pack_into(">i", record, 0, size)
    struct.pack_into(">q", record, QUEUE_OFFSET_AT, offset)
    record[_WANTED_AT], record[_DOES_AT] = wanted, does
    return bytes(record)


def wants(record: bytes, version: int) -> bool:
    """True if the version passes the record."""
    return bool(record[_WANTED_AT] >> (version & 1) & 1)


def harm(record: bytes, version: int) -> Does:
    """The fault that the record triggers in the version."""
    return Does(record[_DOES_AT]) if version & 1 else Does.NOTHING


@dataclass(slots=True)
class Asked:
    """A pending pull of a consumer, and its limits.

    `versions` were active while it was pending. It reports its own offset as the group's progress.
    """

    queue: int
    offset: int
    due_ms: int
    versions: set[int]
    policies: set[FilterPolicy]
    count_max: int = 32
    bytes_max: int = 1 << 20


@dataclass(slots=True)
class Tally:
    """Counts and observations of a run."""

    answers: Counter[int] = field(default_factory=Counter)
    failures: Counter[str] = field(default_factory=Counter)
    warnings: list[str] = field(default_factory=list)
    workers_max: int = 0
    batches: int = 0
    largest_batch: int = 0
    skipped: set[tuple[int, int]] = field(default_factory=set)
    unfiltered: set[tuple[int, int]] = field(default_factory=set)
    upstream: int = 0


def cut(run: bytes) -> list[bytes]:
    """Split a run of records."""
    found, at = [], 0
    while at < len(run):
        size = struct.unpack_from(">i", run, at)[0]
        found.append(run[at : at + size])
        at += size
    return found
