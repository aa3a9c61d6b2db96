"""The JSON bodies of batch transactions.

PREPARE_BATCH   {"attempts":{"0":["a7.1",120],"1":["a7.2",98]}}
winners         {"winners":{"0":"a7.1","1":"a7.2"},"counts":{"broker-a":218}}
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, TypeVar

import msgspec

from kourou.model.limits import BATCH_ATTEMPT_LENGTH_MAX, BATCH_PARTITIONS_MAX, BROKERS_MAX
from kourou.protocol.wire.json_bodies import Buffer, malformed

T = TypeVar("T")
Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
Attempt = Annotated[str, msgspec.Meta(min_length=1, max_length=BATCH_ATTEMPT_LENGTH_MAX)]
_Partitions = msgspec.Meta(max_length=BATCH_PARTITIONS_MAX)


class _AttemptsShape(msgspec.Struct, frozen=True):
    attempts: Annotated[dict[Count, tuple[Attempt, Count]], _Partitions]


class Decision(msgspec.Struct, frozen=True):
    """The winners of a batch: partition -> attempt, and the numbers of their messages by broker."""

    winners: Annotated[dict[Count, Attempt], _Partitions] = {}
    counts: Annotated[dict[str, Count], msgspec.Meta(max_length=BROKERS_MAX)] = {}


_attempts = msgspec.json.Decoder(_AttemptsShape)
_decision = msgspec.json.Decoder(Decision)
_encode = msgspec.json.Encoder().encode


def encode_attempts(attempts: Mapping[int, tuple[str, int]]) -> bytes:
    """The body of PREPARE_BATCH: partition -> (attempt, messages)."""
    return _encode(_AttemptsShape(dict(attempts)))


def decode_attempts(body: Buffer) -> dict[int, tuple[str, int]]:
    """The attempts of such a body. Raises DecodeError."""
    return _decode(body, _attempts, "list of attempts").attempts


def encode_decision(winners: Mapping[int, str], counts: Mapping[str, int]) -> bytes:
    """The body of DECIDE_BATCH, of RESOLVE_BATCH and of replies with a decision."""
    return _encode(Decision(dict(winners), dict(counts)))


def decode_decision(body: Buffer) -> Decision:
    """The decision in such a body; an empty body has no winners. Raises DecodeError."""
    return _decode(body, _decision, "decision about a batch") if len(body) else Decision()


def _decode(body: Buffer, decoder: msgspec.json.Decoder[T], what: str) -> T:
    try:
        return decoder.decode(body)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise malformed(what, error) from error
