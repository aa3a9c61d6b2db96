"""Validates the replies of a worker: fixed widths, compared and not decoded."""

from __future__ import annotations

from dataclasses import dataclass

from kourou_filter_server.sandbox import wire


@dataclass(frozen=True, slots=True)
class FilterResults:
    """A filter's results for a batch.

    `verdicts` has one byte for each record: 0 rejected, 1 passed, 2 not evaluated. `kind` is "" or,
    if there is a 2, "raised" or "memory"; then `failure` is the reason of the first one. `micros`
    is the CPU time that the worker reports, limited to the wall time.
    """

    verdicts: bytes
    failure: str | None
    micros: int
    kind: str = ""


class Lie(Exception):
    """The worker violated the protocol."""


class Refused(Exception):
    """The worker reports that it cannot start."""

    def __init__(self, kind: str, reason: str) -> None:
        super().__init__(reason)
        self.kind = kind
        self.reason = reason


_SETUP_KINDS = {
    wire.REFUSED: "setup",
    wire.REFUSED_FOR_MEMORY: "memory",
    wire.LAYER_MISSING: "setup",
}


def read_setup(received: bytearray, elapsed_us: int) -> FilterResults | None:
    """Read the reply to a source: an empty result if the filter is ready; None if incomplete.

    Raises Refused if the worker cannot start, and Lie.
    """
    if len(received) < wire.SETUP_REPLY.size:
        return None
    if len(received) > wire.SETUP_REPLY.size:
        raise Lie("more bytes than a reply has")
    outcome, reason = wire.SETUP_REPLY.unpack(received)
    if outcome == wire.READY:
        return FilterResults(b"", None, 0)
    if outcome not in _SETUP_KINDS:
        raise Lie(f"result {outcome} of its set-up")
    raise Refused(_SETUP_KINDS[outcome], _text(reason))


def read_filter_results(
    received: bytearray, number: int, count: int, elapsed_us: int
) -> FilterResults | None:
    """Read the reply to batch `number` of `count` records; None if it is incomplete.

    Raises Lie.
    """
    head = wire.REPLY_HEAD.size
    if len(received) < head:
        return None
    told, told_count, micros, failure = wire.REPLY_HEAD.unpack_from(received)
    if told != number:
        raise Lie(f"batch {told} instead of {number}")
    if told_count != count:
        raise Lie(f"{told_count} results instead of {count}")
    if failure not in _KINDS:
        raise Lie(f"failure {failure}")
    end = head + count
    width = end if failure == wire.NO_FAILURE else end + wire.REASON_BYTES
    if len(received) > width:
        raise Lie("more bytes than a reply has")
    if len(received) < width:
        return None
    verdicts = bytes(received[head:end])
    if verdicts.translate(None, b"\0\1\2"):
        raise Lie("an invalid result")
    if (wire.FAILED in verdicts) is not (failure != wire.NO_FAILURE):
        raise Lie("a failure without its message, or a message without a failure")
    reason = None if failure == wire.NO_FAILURE else _text(bytes(received[end:]))
    return FilterResults(verdicts, reason, min(micros, elapsed_us), _KINDS[failure])


_KINDS = {wire.NO_FAILURE: "", wire.RAISED: "raised", wire.OUT_OF_MEMORY: "memory"}


def _text(reason: bytes) -> str:
    """A reason for logs and replies: one line of printable text, whatever the bytes are."""
    said = reason.partition(b"\0")[0].decode("utf-8", "replace")
    line = "".join(letter if letter.isprintable() else " " for letter in said).strip()
    return line or "no reason was given"
