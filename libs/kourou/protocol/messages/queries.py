"""Headers of looking messages up (fact sheet §2.3)."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from kourou.protocol.request import Int32, Int64, Request, Response


class QueryMessage(Request, kw_only=True, frozen=True):
    """QUERY_MESSAGE (12): messages of a topic by key, within store times in ms.

    `unique_key_query` marks a search for a client's message id; then `max_num` is the broker's own.
    """

    code: ClassVar[int] = 12
    topic: str
    key: str
    max_num: Int32
    begin_timestamp: Int64
    end_timestamp: Int64
    unique_key_query: bool | None = msgspec.field(default=None, name="_UNIQUE_KEY_QUERY")


class QueryMessageResponse(Response, kw_only=True, frozen=True):
    """How far the key index has come."""

    index_last_update_timestamp: Int64
    index_last_update_phyoffset: Int64


class ViewMessageById(Request, kw_only=True, frozen=True):
    """VIEW_MESSAGE_BY_ID (33): the record at byte position `offset` of the commit log."""

    code: ClassVar[int] = 33
    offset: Int64


class QueryConsumeQueue(Request, kw_only=True, frozen=True):
    """QUERY_CONSUME_QUEUE (321): units of one queue from `index` on, and which match a group."""

    code: ClassVar[int] = 321
    topic: str
    queue_id: Int32
    index: Int64
    count: Int32
    consumer_group: str | None = None
