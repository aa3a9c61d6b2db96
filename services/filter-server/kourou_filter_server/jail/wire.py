"""The bytes between the filter server, the zygote and the workers (docs/formats/filter-worker.md).

All integers are little-endian. What a worker sends has a fixed width, so that reading it is a
comparison and never a decoder. State: none.
"""

from __future__ import annotations

import struct

REQUEST_BYTES_MAX = 32 * 1024 * 1024
"""One request to a worker; the largest message four times over, and what a pull may carry."""

REASON_BYTES = 512
"""Why something failed: UTF-8, padded with NUL."""

# -- filter server to worker ----------------------------------------------------------------------

LENGTH = struct.Struct("<I")
"""Before each frame to a worker: bytes that follow."""

SOURCE_HEAD = struct.Struct("<IHH")
"""First frame: version, bytes of the group, bytes of the name; then group, name and source."""

REQUEST_HEAD = struct.Struct("<IqH")
"""Any later frame: batch number, now in ms, bytes of the topic; then the topic, ..."""

REQUEST_COUNT = struct.Struct("<I")
"""... the number of records, and the records back to back."""

# -- worker to filter server ----------------------------------------------------------------------

SETUP_REPLY = struct.Struct(f"<I{REASON_BYTES}s")
"""Outcome (READY, ...) and the reason, if it is another one."""

READY, REFUSED, REFUSED_FOR_MEMORY, WALL_MISSING = 0, 1, 2, 3

REPLY_HEAD = struct.Struct("<IIII")
"""Batch number, n, microseconds of processor time, failure; then n verdicts, then if failure is not
NONE a reason of REASON_BYTES."""

NO_FAILURE, RAISED, OUT_OF_MEMORY = 0, 1, 2

REJECT, PASS, FAILED = 0, 1, 2
"""A verdict: one byte for each record."""

# -- filter server and zygote ---------------------------------------------------------------------

CONTROL_BYTES_MAX = 65_536
"""One frame between filter server and zygote; the socket keeps frames apart (SOCK_SEQPACKET)."""

START = struct.Struct("<cIQIB")
"""To the zygote: b"S", number, memory in bytes, processor allowance in s, niceness; with the
worker's end of its socket."""

RENEW = struct.Struct("<cII")
"""To the zygote: b"R", number, processor allowance in s."""

STARTED = struct.Struct("<cIi")
"""From the zygote: b"W", number, pid; with a descriptor of the process (pidfd)."""

NOT_STARTED = struct.Struct("<cI")
"""From the zygote: b"F", number; then why, as UTF-8."""

ENDED = struct.Struct("<cIi")
"""From the zygote: b"E", number, exit code, or minus the signal that killed it."""

READY_KIND = b"H"
"""From the zygote, first: b"H", then JSON {"layers": [[name, there, detail], ...]}."""


def padded(reason: str) -> bytes:
    """A reason as it travels, cut between characters."""
    cut = reason.encode("utf-8", "replace")[:REASON_BYTES].decode("utf-8", "ignore")
    return cut.replace("\0", " ").encode().ljust(REASON_BYTES, b"\0")
