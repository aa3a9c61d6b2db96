"""Headers of pulls and offsets: pulls, message queries, progress of groups, bounds, resets."""

from __future__ import annotations

from enum import IntEnum
from typing import ClassVar

import msgspec

from kourou.protocol.request import Int32, Int64, Request, Response


class PullFlag(IntEnum):
    """Bits of a pull's `sys_flag`. An IntEnum for the reason of SysFlag."""

    COMMIT_OFFSET = 1
    SUSPEND = 2
    SUBSCRIPTION = 4
    CLASS_FILTER = 8
    LITE_PULL = 16


class PullMessage(Request, kw_only=True, frozen=True):
    """PULL_MESSAGE (11): get messages of one queue from an offset on.

    `max_msg_bytes` is Kourou's own: if a client sets this limit, RocketMQ's per-pull limits of the
    broker do not apply, only those of the protocol.
    """

    code: ClassVar[int] = 11
    consumer_group: str
    topic: str
    queue_id: Int32
    queue_offset: Int64
    max_msg_nums: Int32
    sys_flag: Int32 = 0
    commit_offset: Int64 = 0
    suspend_timeout_millis: Int64 = 0
    subscription: str | None = None
    sub_version: Int64 = 0
    expression_type: str | None = None
    bname: str | None = None
    max_msg_bytes: Int32 | None = None


class PullResponse(Response, kw_only=True, frozen=True):
    """The next offset and the bounds of the queue; for codes 0, 19, 20 and 21.

    Kourou's own, from filter servers: `filter_version` is the version that ran; with FILTER_FAILED,
    `filter_failure` is the kind of failure in one word (docs/filters.md).
    """

    suggest_which_broker_id: Int64
    next_begin_offset: Int64
    min_offset: Int64
    max_offset: Int64
    filter_version: Int32 | None = None
    filter_failure: str | None = None


# -- queries --------------------------------------------------------------------------------------


class QueryMessage(Request, kw_only=True, frozen=True):
    """QUERY_MESSAGE (12): get messages of a topic by key, within store times in ms.

    `unique_key_query` marks a search for a client's message id; then the broker uses its own
    `max_num`.
    """

    code: ClassVar[int] = 12
    topic: str
    key: str
    max_num: Int32
    begin_timestamp: Int64
    end_timestamp: Int64
    unique_key_query: bool | None = msgspec.field(default=None, name="_UNIQUE_KEY_QUERY")


class QueryMessageResponse(Response, kw_only=True, frozen=True):
    """The progress of the key index."""

    index_last_update_timestamp: Int64
    index_last_update_phyoffset: Int64


class ViewMessageById(Request, kw_only=True, frozen=True):
    """VIEW_MESSAGE_BY_ID (33): get the record at byte position `offset` of the commit log."""

    code: ClassVar[int] = 33
    offset: Int64


class QueryConsumeQueue(Request, kw_only=True, frozen=True):
    """QUERY_CONSUME_QUEUE (321): get units of one queue from `index` on, and which match."""

    code: ClassVar[int] = 321
    topic: str
    queue_id: Int32
    index: Int64
    count: Int32
    consumer_group: str | None = None


# -- offsets: a group's progress, a queue's bounds, search by time, resets ------------------------


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
