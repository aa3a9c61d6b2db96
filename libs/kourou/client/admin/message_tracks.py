"""The consume status of a message in one group, derived from the brokers' replies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from kourou.errors import Code, KourouError
from kourou.filtering.subscriptions import selects
from kourou.model.subscription import (
    MATCH_ALL,
    SQL92,
    TAG,
    ConsumeType,
    MessageModel,
    Subscription,
)
from kourou.protocol.bodies.lists_body import ConsumerConnection
from kourou.protocol.bodies.statistics_bodies import OffsetWrapper


class TrackKind(StrEnum):
    """RocketMQ's `TrackType`, with its spelling."""

    CONSUMED = "CONSUMED"  # the group has committed past it
    CONSUMED_BUT_FILTERED = "CONSUMED_BUT_FILTERED"  # past it, and excluded by tag or SQL92
    PULL = "PULL"  # the group pulls and manages its own offsets
    NOT_CONSUME_YET = "NOT_CONSUME_YET"  # the group has not committed past it
    NOT_ONLINE = "NOT_ONLINE"  # no consumer is connected
    CONSUME_BROADCASTING = "CONSUME_BROADCASTING"  # every consumer has its own offsets
    UNKNOWN = "UNKNOWN"  # the broker did not reply, or a Python filter decided


@dataclass(frozen=True, slots=True)
class MessageTrack:
    """The status of a message in one group.

    `consumed` is whether the group has committed past the message, whether or not a consumer is
    connected; None if unknown. `offset` is the next offset that the group will receive of that
    queue.
    """

    group: str
    kind: TrackKind
    consumed: bool | None = None
    offset: int | None = None
    reason: str = ""


def track(
    group: str,
    connected: ConsumerConnection | KourouError,
    progress: OffsetWrapper | KourouError | None,
    topic: str,
    offset: int,
    properties: Mapping[str, str],
) -> MessageTrack:
    """Return the status of the message of `topic` at `offset`.

    `progress` is the group's offset in the message's queue.
    """
    where = progress.consumer_offset if isinstance(progress, OffsetWrapper) else None
    consumed = None if where is None else where > offset
    if isinstance(connected, KourouError):
        away = connected.wire_code == Code.CONSUMER_NOT_ONLINE
        kind = TrackKind.NOT_ONLINE if away else TrackKind.UNKNOWN
        return MessageTrack(group, kind, consumed, where, str(connected))
    if connected.message_model is MessageModel.BROADCASTING:
        return MessageTrack(group, TrackKind.CONSUME_BROADCASTING)
    if connected.consume_type is ConsumeType.CONSUME_ACTIVELY:
        return MessageTrack(group, TrackKind.PULL, consumed, where)
    if consumed is None:
        reason = (
            str(progress)
            if isinstance(progress, KourouError)
            else "its queue is not reported by the broker"
        )
        return MessageTrack(group, TrackKind.UNKNOWN, None, None, reason)
    if not consumed:
        return MessageTrack(group, TrackKind.NOT_CONSUME_YET, False, where)
    subscription = connected.subscriptions.get(topic)
    wants = True if subscription is None else _matches(subscription, properties)
    if wants is None:
        assert subscription is not None, "nothing else is unknown"
        reason = (
            "the group consumed past it; whether the filter "
            f"{subscription.expression} accepted it is not checked here"
        )
        return MessageTrack(group, TrackKind.UNKNOWN, True, where, reason)
    if wants:
        return MessageTrack(group, TrackKind.CONSUMED, True, where)
    assert subscription is not None, "a subscription rejects it"
    by = "SQL92" if subscription.expression_type == SQL92 else "its tag"
    reason = f"filtered by {by}: the subscription is {subscription.expression}"
    return MessageTrack(group, TrackKind.CONSUMED_BUT_FILTERED, True, where, reason)


def _matches(subscription: Subscription, properties: Mapping[str, str]) -> bool | None:
    """Return whether the subscription matches; None if a Python filter decides.

    A `*` among tags matches every message, as RocketMQ's tools report it.
    """
    if MATCH_ALL in subscription.tags and subscription.expression_type == TAG:
        return None if subscription.class_filter_mode else True
    return selects(subscription, properties)
