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

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, get_type_hints

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


_WORDS: dict[type[TraceRecord], str] = {
    Published: "Pub",
    ConsumeStarted: "SubBefore",
    Consumed: "SubAfter",
    TransactionEnded: "EndTransaction",
}
_KINDS = {word: kind for kind, word in _WORDS.items()}
_FIELDS = {kind: get_type_hints(kind) for kind in _WORDS}
"""The fields of a record, in their order on the wire, with their types."""

_NULLED = {
    Published: ("tag", "offset_message_id"),
    ConsumeStarted: ("region", "keys"),
    Consumed: ("keys",),
    TransactionEnded: ("tag",),
}
"""The fields for which Java writes `null` if they are empty."""

_LEAST = {Published: 11, ConsumeStarted: 7, Consumed: 5, TransactionEnded: 12}
"""The number of fields of the oldest clients."""


# -- encoding -------------------------------------------------------------------------------------


def encode_record(record: TraceRecord) -> str:
    """One record as text, including its end. Separators inside a field become spaces."""
    kind = type(record)
    texts = [_WORDS[kind]]
    for name in _FIELDS[kind]:
        value = getattr(record, name)
        if isinstance(value, bool):
            texts.append("true" if value else "false")
        elif isinstance(value, int):
            texts.append(str(int(value)))
        else:
            texts.append(_clean(value) or (NULL if name in _NULLED[kind] else ""))
    return FIELD.join(texts) + RECORD


def _clean(text: str) -> str:
    if FIELD in text or RECORD in text:
        return text.replace(FIELD, " ").replace(RECORD, " ")
    return text


def keys_of(record: TraceRecord) -> Iterable[str]:
    """The keys of a trace message with this record: the message's ID and its keys."""
    return (record.message_id, *record.keys.split())


# -- decoding -------------------------------------------------------------------------------------


def decode_trace(body: bytes) -> list[TraceRecord]:
    """The records of a trace message's body, in order."""
    found: list[TraceRecord] = []
    for line in body.decode("utf-8", "replace").split(RECORD):
        word, *texts = line.split(FIELD)
        kind = _KINDS.get(word)
        if kind is None or len(texts) < _LEAST[kind]:
            continue
        try:
            found.append(_record(kind, ["" if text == NULL else text for text in texts]))
        except ValueError:  # an invalid number: a record of another program, ignored
            continue
    return found


def _record(kind: type[TraceRecord], texts: list[str]) -> TraceRecord:
    if kind is Published:
        # Clients before 4.3 send no offset ID and, with 12 fields, only the success.
        rest = texts[11:]
        texts[11:] = rest if len(rest) > 1 else ["", *(rest or ["true"])]
    elif kind is Consumed:
        texts += ["", "", ""]
        usual = ContextCode.SUCCESS if texts[3] == "true" else ContextCode.FAILED
        texts[5] = texts[5] or str(int(usual))
        texts[6] = texts[6] or "0"
    types = _FIELDS[kind].values()
    return kind(*(_value(of, text) for of, text in zip(types, texts, strict=False)))


def _value(kind: type[Any], text: str) -> Any:
    if kind is str:
        return text
    return text == "true" if kind is bool else kind(int(text))
