"""Stored records as far as a filter server may look at them, and what filters make of them.

    size, …, queue offset, …, wanted, does

`wanted` has one bit for versions with even numbers and one for odd ones; `does` is what a message
does to odd versions: even ones are mended.

State: none, but for a run's notes.
"""

from __future__ import annotations

import struct
from collections import Counter
from dataclasses import dataclass, field
from enum import IntEnum

from kourou.model.filter import FilterPolicy
from kourou.model.limits import RECORD_FIXED_BYTES
from kourou.protocol.record_layout import QUEUE_OFFSET_AT

_WANTED_AT, _DOES_AT = RECORD_FIXED_BYTES, RECORD_FIXED_BYTES + 1


class Does(IntEnum):
    """What a message does to an odd version."""

    NOTHING = 0
    RAISE = 1
    DIE = 2
    TIMEOUT = 3
    LIE = 4
    MEMORY = 5


def fake_record(offset: int, wanted: int, does: Does, size: int) -> bytes:
    """As much of a stored record as a filter server may look at; `wanted` has a bit a parity."""
    record = bytearray(size)
    struct.pack_into(">i", record, 0, size)
    struct.pack_into(">q", record, QUEUE_OFFSET_AT, offset)
    record[_WANTED_AT], record[_DOES_AT] = wanted, does
    return bytes(record)


def wants(record: bytes, version: int) -> bool:
    """What a version makes of it."""
    return bool(record[_WANTED_AT] >> (version & 1) & 1)


def harm(record: bytes, version: int) -> Does:
    """What it does to a version."""
    return Does(record[_DOES_AT]) if version & 1 else Does.NOTHING


@dataclass(slots=True)
class Asked:
    """A pull of a consumer that is not answered, and its limits.

    `versions` were active meanwhile. Of the group's progress it tells the broker its own offset.
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
    """What was seen."""

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
    """The records of a run."""
    found, at = [], 0
    while at < len(run):
        size = struct.unpack_from(">i", run, at)[0]
        found.append(run[at : at + size])
        at += size
    return found
