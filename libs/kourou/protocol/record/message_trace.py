"""Records of message traces, as RocketMQ's clients write and read them.

A trace message is an ordinary message whose body is text: fields joined by 0x01, every record
followed by 0x02. Its keys are the IDs and keys of the messages in it, so that the key index finds
it.

    Pub              time region group topic id tags keys storeHost bodyLength cost kind offsetId ok
    SubBefore        time region group requestId id retryTimes keys
    SubAfter         requestId id cost ok keys contextCode [time group]
    EndTransaction   time region group topic id tags keys storeHost kind transactionId state check

Java writes the word `null` for a missing value; it is read as an empty text. Records of an unknown
kind, or with too few fields, are skipped.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum

FIELD = "\x01"
RECORD = "\x02"
NULL = "null"


class TraceKind(IntEnum):
    """The kind of a message when it was sent; the numbers are Java's ordinals."""

    NORMAL = 0
    HALF = 1
    COMMIT = 2
    DELAYED = 3


class ContextCode(IntEnum):
    """How consuming ended."""

    SUCCESS = 0
    TIME_OUT = 1
    EXCEPTION = 2
    RETURNED_NULL = 3
    FAILED = 4


@dataclass(frozen=True, slots=True)
class Published:
    """A message was sent, or sending failed: `Pub`. Times are epoch ms, the cost ms."""

    timestamp_ms: int
    region: str
    group: str
    topic: str
    message_id: str
    tag: str
    keys: str
    store_host: str
    body_length: int
    cost_ms: int
    kind: TraceKind
    offset_message_id: str
    success: bool


@dataclass(frozen=True, slots=True)
class ConsumeStarted:
    """A handler is about to be called: `SubBefore`. `request_id` joins it with its end."""

    timestamp_ms: int
    region: str
    group: str
    request_id: str
    message_id: str
    retry_times: int
    keys: str


@dataclass(frozen=True, slots=True)
class Consumed:
    """A handler has ended: `SubAfter`. Old clients send neither time (0) nor group."""

    request_id: str
    message_id: str
    cost_ms: int
    success: bool
    keys: str
    context_code: ContextCode
    timestamp_ms: int = 0
    group: str = ""


@dataclass(frozen=True, slots=True)
class TransactionEnded:
    """A transaction was resolved by its producer: `EndTransaction`; `state` is COMMIT_MESSAGE …"""

    timestamp_ms: int
    region: str
    group: str
    topic: str
    message_id: str
    tag: str
    keys: str
    store_host: str
    kind: TraceKind
    transaction_id: str
    state: str
    from_check: bool


TraceRecord = Published | ConsumeStarted | Consumed | TransactionEnded


# -- encoding -------------------------------------------------------------------------------------


def encode_record(record: TraceRecord) -> str:
    """One record as text, including its end. Separators inside a field become spaces."""
    match record:
        case Published():
            fields: Sequence[object] = (
                "Pub",
                record.timestamp_ms,
                record.region,
                record.group,
                record.topic,
                record.message_id,
                record.tag or NULL,
                record.keys,
                record.store_host,
                record.body_length,
                record.cost_ms,
                int(record.kind),
                record.offset_message_id or NULL,
                _flag(record.success),
            )
        case ConsumeStarted():
            fields = (
                "SubBefore",
                record.timestamp_ms,
                record.region or NULL,
                record.group,
                record.request_id,
                record.message_id,
                record.retry_times,
                record.keys or NULL,
            )
        case Consumed():
            fields = (
                "SubAfter",
                record.request_id,
                record.message_id,
                record.cost_ms,
                _flag(record.success),
                record.keys or NULL,
                int(record.context_code),
                record.timestamp_ms,
                record.group,
            )
        case TransactionEnded():
            fields = (
                "EndTransaction",
                record.timestamp_ms,
                record.region,
                record.group,
                record.topic,
                record.message_id,
                record.tag or NULL,
                record.keys,
                record.store_host,
                int(record.kind),
                record.transaction_id,
                record.state,
                _flag(record.from_check),
            )
    return FIELD.join(_clean(str(field)) for field in fields) + RECORD


def _clean(text: str) -> str:
    if FIELD in text or RECORD in text:
        return text.replace(FIELD, " ").replace(RECORD, " ")
    return text


def _flag(value: bool) -> str:
    return "true" if value else "false"


def keys_of(record: TraceRecord) -> Iterable[str]:
    """The keys of a trace message with this record: the message's ID and its keys."""
    return (record.message_id, *record.keys.split())


# -- decoding -------------------------------------------------------------------------------------


def decode_trace(body: bytes) -> list[TraceRecord]:
    """The records of a trace message's body, in order."""
    found: list[TraceRecord] = []
    for line in body.decode("utf-8", "replace").split(RECORD):
        record = _record(line.split(FIELD))
        if record is not None:
            found.append(record)
    return found


def _record(fields: list[str]) -> TraceRecord | None:
    fields = ["" if field == NULL else field for field in fields]
    try:
        match fields[0]:
            case "Pub" if len(fields) >= _PUB_LEAST:
                return _published(fields)
            case "SubBefore" if len(fields) >= _BEFORE_LEAST:
                return ConsumeStarted(
                    int(fields[1]),
                    fields[2],
                    fields[3],
                    fields[4],
                    fields[5],
                    int(fields[6]),
                    fields[7],
                )
            case "SubAfter" if len(fields) >= _AFTER_LEAST:
                return _consumed(fields)
            case "EndTransaction" if len(fields) >= _END_LEAST:
                return _transaction_ended(fields)
    except ValueError:  # an invalid number: a record of another program, ignored
        return None
    return None


_PUB_LEAST, _BEFORE_LEAST, _AFTER_LEAST, _END_LEAST = 12, 8, 6, 13


def _published(fields: list[str]) -> Published:
    """Clients before 4.3 send no offset ID and, with 13 fields, only the success."""
    rest = fields[12:]
    success = rest[-1] if len(rest) == 1 else (rest[1] if len(rest) > 1 else "true")
    return Published(
        timestamp_ms=int(fields[1]),
        region=fields[2],
        group=fields[3],
        topic=fields[4],
        message_id=fields[5],
        tag=fields[6],
        keys=fields[7],
        store_host=fields[8],
        body_length=int(fields[9]),
        cost_ms=int(fields[10]),
        kind=TraceKind(int(fields[11])),
        offset_message_id=rest[0] if len(rest) > 1 else "",
        success=success == "true",
    )


def _transaction_ended(fields: list[str]) -> TransactionEnded:
    return TransactionEnded(
        timestamp_ms=int(fields[1]),
        region=fields[2],
        group=fields[3],
        topic=fields[4],
        message_id=fields[5],
        tag=fields[6],
        keys=fields[7],
        store_host=fields[8],
        kind=TraceKind(int(fields[9])),
        transaction_id=fields[10],
        state=fields[11],
        from_check=fields[12] == "true",
    )


def _consumed(fields: list[str]) -> Consumed:
    success = fields[4] == "true"
    code = ContextCode.SUCCESS if success else ContextCode.FAILED
    return Consumed(
        fields[1],
        fields[2],
        int(fields[3]),
        success,
        fields[5],
        ContextCode(int(fields[6])) if len(fields) > 6 and fields[6] else code,
        int(fields[7]) if len(fields) > 7 and fields[7] else 0,
        fields[8] if len(fields) > 8 else "",
    )
