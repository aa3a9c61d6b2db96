"""What a worker may answer, and nothing else: fixed widths, compared and not decoded."""

from __future__ import annotations

from dataclasses import dataclass

from kourou_filter_server.jail import wire


@dataclass(frozen=True, slots=True)
class Verdicts:
    """What a filter said about a batch.

    `verdicts` has one byte a record: 0 rejected, 1 passes, 2 could not be judged. `kind` is "" or,
    if there is a 2, "raised" or "memory", and then `failure` says why the first one failed.
    `micros` is processor time as the worker tells it, and never more than the wall time.
    """

    verdicts: bytes
    failure: str | None
    micros: int
    kind: str = ""


class Lie(Exception):
    """The worker sent what no worker sends."""


class Refused(Exception):
    """The worker says that it cannot begin."""

    def __init__(self, kind: str, reason: str) -> None:
        super().__init__(reason)
        self.kind = kind
        self.reason = reason


_SETUP_KINDS = {
    wire.REFUSED: "setup",
    wire.REFUSED_FOR_MEMORY: "memory",
    wire.WALL_MISSING: "setup",
}


def read_setup(received: bytearray, elapsed_us: int) -> Verdicts | None:
    """The reply to a source: no verdicts, and no failure, when the filter is ready; None: go on.

    Raises Refused when the worker cannot begin, Lie.
    """
    if len(received) < wire.SETUP_REPLY.size:
        return None
    if len(received) > wire.SETUP_REPLY.size:
        raise Lie("more bytes than a reply has")
    outcome, reason = wire.SETUP_REPLY.unpack(received)
    if outcome == wire.READY:
        return Verdicts(b"", None, 0)
    if outcome not in _SETUP_KINDS:
        raise Lie(f"result {outcome} of its set-up")
    raise Refused(_SETUP_KINDS[outcome], _text(reason))


def read_verdicts(received: bytearray, number: int, count: int, elapsed_us: int) -> Verdicts | None:
    """The reply to batch `number` of `count` records; None: not all of it is there yet.

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
    return Verdicts(verdicts, reason, min(micros, elapsed_us), _KINDS[failure])


_KINDS = {wire.NO_FAILURE: "", wire.RAISED: "raised", wire.OUT_OF_MEMORY: "memory"}


def _text(reason: bytes) -> str:
    """A reason for logs and answers: whatever the bytes are, it is one harmless line."""
    said = reason.partition(b"\0")[0].decode("utf-8", "replace")
    line = "".join(letter if letter.isprintable() else " " for letter in said).strip()
    return line or "no reason was given"
