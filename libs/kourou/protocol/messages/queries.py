"""Headers of message queries."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from kourou.protocol.request import Int32, Int64, Request, Response


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
