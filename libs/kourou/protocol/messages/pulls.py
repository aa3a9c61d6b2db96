"""Headers of pulls and of message queries."""

from __future__ import annotations

from enum import IntFlag
from typing import ClassVar

import msgspec

from kourou.protocol.request import Int32, Int64, Request, Response


class PullFlag(IntFlag):
    """Bits of a pull's `sys_flag`."""

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
