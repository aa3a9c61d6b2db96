"""The protocol between the filter server, the zygote and the workers.

See docs/formats/filter-worker.md. All integers are little-endian. What a worker sends has a fixed
width, so that it is read by comparison and never decoded. State: none.
"""

from __future__ import annotations

import struct

REQUEST_BYTES_MAX = 32 * 1024 * 1024
"""The maximum size of a request to a worker: four times the largest message, as for a pull."""

REASON_BYTES = 512
"""The size of a failure's reason: UTF-8, padded with NUL."""

# -- filter server to worker ----------------------------------------------------------------------

LENGTH = struct.Struct("<I")
"""Precedes each frame to a worker: the number of bytes that follow."""

SOURCE_HEAD = struct.Struct("<IHH")
"""The first frame: version, bytes of the group, bytes of the name; then group, name and source."""

REQUEST_HEAD = struct.Struct("<IqH")
"""Any later frame: batch number, current time in ms, bytes of the topic; then the topic, ..."""

REQUEST_COUNT = struct.Struct("<I")
"""... the number of records, and the records back to back."""

# -- worker to filter server ----------------------------------------------------------------------

SETUP_REPLY = struct.Struct(f"<I{REASON_BYTES}s")
"""Outcome (READY, ...), and the reason if it is not READY."""

READY, REFUSED, REFUSED_FOR_MEMORY, LAYER_MISSING = 0, 1, 2, 3

REPLY_HEAD = struct.Struct("<IIII")
"""Batch number, n, microseconds of CPU time, failure; then n results, then if failure is not NONE a
reason of REASON_BYTES.
"""

NO_FAILURE, RAISED, OUT_OF_MEMORY = 0, 1, 2

REJECT, PASS, FAILED = 0, 1, 2
"""A result: one byte for each record."""

# -- filter server and zygote ---------------------------------------------------------------------

CONTROL_BYTES_MAX = 65_536
"""The maximum frame between filter server and zygote; SOCK_SEQPACKET preserves frame boundaries."""

START = struct.Struct("<cIQIB")
"""To the zygote: b"S", number, memory in bytes, CPU allowance in s, niceness; with the worker's end
of its socket.
"""

RENEW = struct.Struct("<cII")
"""To the zygote: b"R", number, CPU allowance in s."""

STARTED = struct.Struct("<cIi")
"""From the zygote: b"W", number, pid; with a pidfd of the process."""

NOT_STARTED = struct.Struct("<cI")
"""From the zygote: b"F", number; then the reason, as UTF-8."""

ENDED = struct.Struct("<cIi")
"""From the zygote: b"E", number, exit code, or minus the signal that killed it."""

READY_KIND = b"H"
"""From the zygote, first: b"H", then JSON {"layers": [[name, available, detail], ...]}."""


def padded(reason: str) -> bytes:
    """A reason as sent, truncated at a character boundary."""
    cut = reason.encode("utf-8", "replace")[:REASON_BYTES].decode("utf-8", "ignore")
    return cut.replace("\0", " ").encode().ljust(REASON_BYTES, b"\0")
