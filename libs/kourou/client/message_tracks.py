"""Who consumed a message: the answer, and how it follows from what brokers know.

Lives here: the kinds of answers and the judgement, as RocketMQ's `messageTrackDetail` makes it.
May not live here: asking brokers (kourou.client.admin_messages).

State: none.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from kourou.errors import Code, KourouError
from kourou.model.subscription import (
    MATCH_ALL,
    TAG,
    ConsumeType,
    MessageModel,
    Subscription,
)
from kourou.protocol.bodies import ConsumerConnection, OffsetWrapper


class TrackKind(StrEnum):
    """RocketMQ's `TrackType`, with its spelling."""

    CONSUMED = "CONSUMED"  # the group has committed beyond it
    CONSUMED_BUT_FILTERED = "CONSUMED_BUT_FILTERED"  # beyond it, and its tag is not wanted
    PULL = "PULL"  # the group pulls for itself and keeps its progress as it likes
    NOT_CONSUME_YET = "NOT_CONSUME_YET"  # the group has not committed beyond it
    NOT_ONLINE = "NOT_ONLINE"  # no member is connected
    CONSUME_BROADCASTING = "CONSUME_BROADCASTING"  # every member keeps its own progress
    UNKNOWN = "UNKNOWN"  # the broker did not say


@dataclass(frozen=True, slots=True)
class MessageTrack:
    """What one group made of a message.

    `consumed`: has the group committed beyond it, also while no member is connected? None where
    nobody can tell. `offset`: the next one that the group will get of that queue.
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
    tag: str | None,
) -> MessageTrack:
    """The judgement over the message of `topic` at `offset`; `progress` is that of its queue."""
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
        reason = str(progress) if isinstance(progress, KourouError) else "its queue is not listed"
        return MessageTrack(group, TrackKind.UNKNOWN, None, None, reason)
    if not consumed:
        return MessageTrack(group, TrackKind.NOT_CONSUME_YET, False, where)
    wanted = connected.subscriptions.get(topic)
    if wanted is not None and not _wants(wanted, tag):
        return MessageTrack(group, TrackKind.CONSUMED_BUT_FILTERED, True, where)
    return MessageTrack(group, TrackKind.CONSUMED, True, where)


def _wants(subscription: Subscription, tag: str | None) -> bool:
    """Of SQL expressions RocketMQ says nothing, and so do we: they are not looked at here."""
    if subscription.expression_type != TAG or not subscription.tags:
        return True
    return MATCH_ALL in subscription.tags or tag in subscription.tags
