"""Headers of offsets: a group's progress, a queue's bounds, search by time, resets."""

from __future__ import annotations

from typing import ClassVar

from kourou.protocol.request import Int32, Int64, Request, Response


class QueryConsumerOffset(Request, kw_only=True, frozen=True):
    """QUERY_CONSUMER_OFFSET (14): get a group's offset in a queue."""

    code: ClassVar[int] = 14
    consumer_group: str
    topic: str
    queue_id: Int32
    bname: str | None = None


class QueryConsumerOffsetResponse(Response, kw_only=True, frozen=True):
    """The next offset that the group will read."""

    offset: Int64


class UpdateConsumerOffset(Request, kw_only=True, frozen=True):
    """UPDATE_CONSUMER_OFFSET (15): commit a group's offset; stored even if lower."""

    code: ClassVar[int] = 15
    consumer_group: str
    topic: str
    queue_id: Int32
    commit_offset: Int64
    bname: str | None = None


class SearchOffsetByTimestamp(Request, kw_only=True, frozen=True):
    """SEARCH_OFFSET_BY_TIMESTAMP (29): get the offset nearest to a store time in ms."""

    code: ClassVar[int] = 29
    topic: str
    queue_id: Int32
    timestamp: Int64
    bname: str | None = None


class SearchOffsetByTimestampResponse(Response, kw_only=True, frozen=True):
    """The offset found."""

    offset: Int64


class GetMaxOffset(Request, kw_only=True, frozen=True):
    """GET_MAX_OFFSET (30): get the offset that the queue's next message will get."""

    code: ClassVar[int] = 30
    topic: str
    queue_id: Int32
    bname: str | None = None


class GetMaxOffsetResponse(Response, kw_only=True, frozen=True):
    """The end of the queue."""

    offset: Int64


class GetMinOffset(Request, kw_only=True, frozen=True):
    """GET_MIN_OFFSET (31): get the first stored offset."""

    code: ClassVar[int] = 31
    topic: str
    queue_id: Int32
    bname: str | None = None


class GetMinOffsetResponse(Response, kw_only=True, frozen=True):
    """The start of the queue."""

    offset: Int64


class GetEarliestMsgStoreTime(Request, kw_only=True, frozen=True):
    """GET_EARLIEST_MSG_STORETIME (32): get the store time of the queue's first message."""

    code: ClassVar[int] = 32
    topic: str
    queue_id: Int32
    bname: str | None = None


class GetEarliestMsgStoreTimeResponse(Response, kw_only=True, frozen=True):
    """Epoch ms; -1 when the queue is empty."""

    timestamp: Int64


class GetAllConsumerOffset(Request, kw_only=True, frozen=True):
    """GET_ALL_CONSUMER_OFFSET (43): get all groups' progress, as in `consumerOffset.json`."""

    code: ClassVar[int] = 43


class GetAllDelayOffset(Request, kw_only=True, frozen=True):
    """GET_ALL_DELAY_OFFSET (45): get the progress of delay levels, as in `delayOffset.json`."""

    code: ClassVar[int] = 45


class CloneGroupOffset(Request, kw_only=True, frozen=True):
    """CLONE_GROUP_OFFSET (314): copy the offsets of one group to another."""

    code: ClassVar[int] = 314
    src_group: str
    dest_group: str
    topic: str | None = None
    offline: bool = False
    reason: str = ""  # the reason, for the history


class InvokeBrokerToResetOffset(Request, kw_only=True, frozen=True):
    """INVOKE_BROKER_TO_RESET_OFFSET (222): reset a group to a store time (-1: to the end).

    Without `is_force` a reset never increases an offset.
    """

    code: ClassVar[int] = 222
    topic: str
    group: str
    timestamp: Int64
    is_force: bool = False
    reason: str = ""  # the reason, for the history


class ResetConsumerClientOffset(Request, kw_only=True, frozen=True):
    """RESET_CONSUMER_CLIENT_OFFSET (220, broker to client, oneway): set these offsets."""

    code: ClassVar[int] = 220
    topic: str
    group: str
    timestamp: Int64 = 0
    is_force: bool = False


class QueryCorrectionOffset(Request, kw_only=True, frozen=True):
    """QUERY_CORRECTION_OFFSET (308): get the lowest offsets of a topic over all groups."""

    code: ClassVar[int] = 308
    filter_groups: str | None = None
    compare_group: str
    topic: str
