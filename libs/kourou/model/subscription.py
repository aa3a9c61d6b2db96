"""Consumer groups: their subscriptions, how they consume, and their configuration."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class MessageModel(StrEnum):
    """Share the messages among a group's consumers, or deliver all of them to every consumer."""

    CLUSTERING = "CLUSTERING"
    BROADCASTING = "BROADCASTING"


class ConsumeType(StrEnum):
    """Pull consumers request messages themselves; for push consumers the client library does."""

    CONSUME_ACTIVELY = "CONSUME_ACTIVELY"
    CONSUME_PASSIVELY = "CONSUME_PASSIVELY"


class ConsumeFromWhere(StrEnum):
    """Where a group without stored offsets starts; afterwards its offsets apply."""

    CONSUME_FROM_LAST_OFFSET = "CONSUME_FROM_LAST_OFFSET"
    CONSUME_FROM_FIRST_OFFSET = "CONSUME_FROM_FIRST_OFFSET"
    CONSUME_FROM_TIMESTAMP = "CONSUME_FROM_TIMESTAMP"


TAG = "TAG"
SQL92 = "SQL92"
FILTER = "FILTER"
"""The kind of a subscription with a Python filter; on the wire its type is TAG."""
MATCH_ALL = "*"


@dataclass(frozen=True, slots=True)
class Subscription:
    """A group's subscription to one topic; `version`: time (ms, consumer) of its last change."""

    topic: str
    expression: str = MATCH_ALL
    expression_type: str = TAG
    tags: frozenset[str] = frozenset()
    codes: frozenset[int] = frozenset()
    version: int = 0
    class_filter_mode: bool = False

    @property
    def kind(self) -> str:
        """The kind of selection: TAG, SQL92 or FILTER."""
        return FILTER if self.class_filter_mode else self.expression_type


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """What the broker allows one consumer group (RocketMQ `SubscriptionGroupConfig`)."""

    name: str
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    consume_broadcast_enable: bool = True
    retry_queue_nums: int = 1
    retry_max_times: int = 16
    broker_id: int = 0
    which_broker_when_consume_slowly: int = 1
    notify_consumer_ids_changed_enable: bool = True
