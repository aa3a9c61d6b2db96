"""Messages as applications send them and as brokers store them, their flags and delay levels."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from functools import lru_cache

import msgspec

from kourou.errors import ConfigError
from kourou.model.limits import DELAY_LEVELS_MAX
from kourou.model.topic import MessageQueue


class Property(StrEnum):
    """Names that RocketMQ reserves among a message's properties (`MessageConst`)."""

    KEYS = "KEYS"
    TAGS = "TAGS"
    UNIQ_KEY = "UNIQ_KEY"
    WAIT = "WAIT"
    DELAY = "DELAY"
    RETRY_TOPIC = "RETRY_TOPIC"
    REAL_TOPIC = "REAL_TOPIC"
    REAL_QID = "REAL_QID"
    RECONSUME_TIME = "RECONSUME_TIME"
    MAX_RECONSUME_TIMES = "MAX_RECONSUME_TIMES"
    ORIGIN_MESSAGE_ID = "ORIGIN_MESSAGE_ID"
    TRAN_MSG = "TRAN_MSG"
    PGROUP = "PGROUP"
    TRANSACTION_ID = "__transactionId__"
    TRAN_PREPARED_QUEUE_OFFSET = "TRAN_PREPARED_QUEUE_OFFSET"
    TRANSACTION_CHECK_TIMES = "TRANSACTION_CHECK_TIMES"
    CHECK_IMMUNITY_TIME = "CHECK_IMMUNITY_TIME_IN_SECONDS"
    CONSUME_START_TIME = "CONSUME_START_TIME"
    MIN_OFFSET = "MIN_OFFSET"
    MAX_OFFSET = "MAX_OFFSET"
    MSG_REGION = "MSG_REGION"
    TRACE_ON = "TRACE_ON"
    INSTANCE_ID = "INSTANCE_ID"
    BUYER_ID = "BUYER_ID"
    TRANSFER_FLAG = "TRANSFER_FLAG"
    CORRECTION_FLAG = "CORRECTION_FLAG"
    MQ2_FLAG = "MQ2_FLAG"
    CORRELATION_ID = "CORRELATION_ID"
    REPLY_TO_CLIENT = "REPLY_TO_CLIENT"
    TTL = "TTL"
    ARRIVE_TIME = "ARRIVE_TIME"
    PUSH_REPLY_TIME = "PUSH_REPLY_TIME"
    MSG_TYPE = "MSG_TYPE"
    CLUSTER = "CLUSTER"
    INNER_MULTI_DISPATCH = "INNER_MULTI_DISPATCH"
    INNER_MULTI_QUEUE_OFFSET = "INNER_MULTI_QUEUE_OFFSET"
    CRC32 = "__CRC32#"
    DLQ_REASON = "DLQ_REASON"
    DLQ_ORIGIN_TOPIC = "DLQ_ORIGIN_TOPIC"
    DLQ_ORIGIN_MESSAGE_ID = "DLQ_ORIGIN_MESSAGE_ID"
    BATCH = "KOUROU_BATCH"
    TRACE_CONTEXT = "TRACE_CONTEXT"
    TRACEPARENT = "traceparent"


RESERVED_PROPERTIES = frozenset(item.value for item in Property) - {
    Property.TRACEPARENT.value,
    Property.TRACE_CONTEXT.value,
}
"""Names that an application may not use for its own properties."""


class Message(msgspec.Struct):
    """A message as an application sends it.

    `keys` are business keys, each indexed; `delay_level` 0 means no delay; with `wait_store_ok`
    False the broker replies before the message is flushed and replicated.
    """

    topic: str
    body: bytes
    tag: str | None = None
    keys: tuple[str, ...] = ()
    properties: dict[str, str] = msgspec.field(default_factory=dict)
    flag: int = 0
    delay_level: int = 0
    wait_store_ok: bool = True


@dataclass(slots=True)
class StoredMessage:
    """A message as a broker stored it (RocketMQ `MessageExt`); the body is already decompressed.

    `message_id` is the producer's unique key, which retries keep; `offset_message_id` identifies
    this stored copy by host and position.
    """

    topic: str
    body: bytes
    properties: dict[str, str]
    flag: int
    queue_id: int
    offset: int
    position: int
    size: int
    sys_flag: int
    born_timestamp: int
    born_host: tuple[str, int]
    store_timestamp: int
    store_host: tuple[str, int]
    body_crc: int
    reconsume_times: int
    prepared_transaction_offset: int
    broker_name: str = ""

    @property
    def tag(self) -> str | None:
        """The tag, or None."""
        return self.properties.get(Property.TAGS)

    @property
    def keys(self) -> tuple[str, ...]:
        """The business keys, in the producer's order."""
        return tuple(self.properties.get(Property.KEYS, "").split())

    @property
    def message_id(self) -> str:
        """The producer's unique key; empty if the producer set none."""
        return self.properties.get(Property.UNIQ_KEY, "")

    @property
    def queue(self) -> MessageQueue:
        """The queue it was read from."""
        return MessageQueue(self.topic, self.broker_name, self.queue_id)


class SendStatus(StrEnum):
    """The four results after which a message is stored; only SEND_OK is a guarantee."""

    SEND_OK = "SEND_OK"
    FLUSH_DISK_TIMEOUT = "FLUSH_DISK_TIMEOUT"
    FLUSH_SLAVE_TIMEOUT = "FLUSH_SLAVE_TIMEOUT"
    SLAVE_NOT_AVAILABLE = "SLAVE_NOT_AVAILABLE"


class SendResult(msgspec.Struct, frozen=True, gc=False):
    """The queue and offset of a sent message, and its status."""

    status: SendStatus
    message_id: str
    queue: MessageQueue
    offset: int
    offset_message_id: str = ""
    transaction_id: str = ""

    def __str__(self) -> str:
        """For display: `SEND_OK orders/broker-a/1@57 id 7F00…`."""
        return f"{self.status.value} {self.queue!s}@{self.offset} id {self.message_id}"


class PullStatus(IntEnum):
    """The result of a pull; the values are the response codes."""

    FOUND = 0
    NO_NEW_MESSAGE = 19
    NO_MATCHED_MESSAGE = 20
    OFFSET_ILLEGAL = 21


# -- bits of a record's SYSFLAG (RocketMQ `MessageSysFlag`) ---------------------------------------


class SysFlag(IntEnum):
    """Bits that say what the broker must know of a message without parsing it.

    An IntEnum: `&` with a member of an IntFlag makes a member, which takes microseconds.
    """

    NONE = 0
    COMPRESSED = 1
    MULTI_TAGS = 2
    TRANSACTION_PREPARED = 4
    TRANSACTION_COMMIT = 8
    TRANSACTION_ROLLBACK = 12
    TRANSACTION_MASK = 12
    BORN_HOST_V6 = 16
    STORE_HOST_V6 = 32


COMPRESSION_SHIFT = 8
COMPRESSION_MASK = 0x7 << COMPRESSION_SHIFT


class Compression(IntEnum):
    """Three bits at `COMPRESSION_SHIFT`; 0 is what clients before 4.9.4 write for zlib."""

    ZLIB_UNMARKED = 0
    LZ4 = 1
    ZSTD = 2
    ZLIB = 3


# -- delay levels: the few delays that a broker offers (RocketMQ `messageDelayLevel`) -------------


# Levels count from 1. A level above the highest is treated as the highest.

DELAY_LEVELS = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
"""RocketMQ's levels, and the default."""

RETRY_LEVEL = 3
"""The level of a failed message's second attempt; each further attempt is one level higher."""

_UNIT_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_DELAY = re.compile(r"[0-9]{1,6}[smhd]")


@lru_cache(maxsize=64)
def parse_delay_levels(text: str) -> tuple[int, ...]:
    """The delays in ms, level 1 first. Raises ConfigError that names an invalid level."""
    delays: list[int] = []
    for number, word in enumerate(text.split(), 1):
        if _DELAY.fullmatch(word) is None:
            raise ConfigError(
                f"messageDelayLevel: level {number} is {word!r}, and not a number of s, m, h or d",
                hint="for example 30s",
            )
        delays.append(int(word[:-1]) * _UNIT_MS[word[-1]])
    if not delays:
        raise ConfigError("messageDelayLevel has no level", hint=f"for example {DELAY_LEVELS}")
    if len(delays) > DELAY_LEVELS_MAX:
        raise ConfigError(
            f"messageDelayLevel has {len(delays)} levels; at most {DELAY_LEVELS_MAX} are allowed"
        )
    return tuple(delays)


DELAY_LEVELS_MS = parse_delay_levels(DELAY_LEVELS)


def delay_of(level: int, levels_ms: Sequence[int]) -> int:
    """The delay in ms of a level (from 1)."""
    return levels_ms[min(level, len(levels_ms)) - 1]
