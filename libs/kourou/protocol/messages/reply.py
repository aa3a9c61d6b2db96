"""Headers of request-reply messaging."""

from __future__ import annotations

from typing import ClassVar

from kourou.protocol.messages.sending import SendFields
from kourou.protocol.request import Int32, Int64, Request


class SendReplyMessage(SendFields, kw_only=True, frozen=True):
    """SEND_REPLY_MESSAGE (324) and SEND_REPLY_MESSAGE_V2 (325): store a reply and forward it."""

    code: ClassVar[int] = 324


class PushReplyMessageToClient(Request, kw_only=True, frozen=True):
    """PUSH_REPLY_MESSAGE_TO_CLIENT (326, broker to client): deliver a reply."""

    code: ClassVar[int] = 326
    producer_group: str
    topic: str
    default_topic: str | None = None
    default_topic_queue_nums: Int32 | None = None
    queue_id: Int32
    sys_flag: Int32
    born_timestamp: Int64
    flag: Int32
    properties: str | None = None
    reconsume_times: Int32 | None = None
    unit_mode: bool = False
    born_host: str
    store_host: str
    store_timestamp: Int64
