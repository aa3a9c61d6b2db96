"""Headers of sends and transactions: messages, send-backs, replies, ends, batch transactions.

Codes 10, 310 and 320 share one header; 310 and 320 spell its fields as single letters. The field
`batch`, not code 320, says that a body is a batch: RocketMQ stores a 320 without it as a single
message.

Batch transactions are Kourou's own: a batch is many half messages, resolved together. Half messages
of a batch are sent like all others and have a mark (kourou.model.transaction). The bodies of batch
requests are JSON (kourou.protocol.bodies.broker_bodies).
"""

from __future__ import annotations

from typing import ClassVar

import msgspec

from kourou.protocol.request import Int32, Int64, Request, Response


class SendFields(Request, kw_only=True, frozen=True):
    """The fields that sends and replies share."""

    producer_group: str
    topic: str
    default_topic: str = ""
    default_topic_queue_nums: Int32 = 0
    queue_id: Int32
    sys_flag: Int32 = 0
    born_timestamp: Int64
    flag: Int32 = 0
    properties: str | None = None
    reconsume_times: Int32 | None = None
    unit_mode: bool = False
    batch: bool = False
    max_reconsume_times: Int32 | None = None
    bname: str | None = None


SEND_SHORT_NAMES = {
    "a": "producerGroup",
    "b": "topic",
    "c": "defaultTopic",
    "d": "defaultTopicQueueNums",
    "e": "queueId",
    "f": "sysFlag",
    "g": "bornTimestamp",
    "h": "flag",
    "i": "properties",
    "j": "reconsumeTimes",
    "k": "unitMode",
    "l": "maxReconsumeTimes",
    "m": "batch",
    "n": "bname",
}
"""Extension fields of the V2 sends (310, 320, 325) and their full names."""


class SendMessage(SendFields, kw_only=True, frozen=True):
    """SEND_MESSAGE (10), SEND_MESSAGE_V2 (310), SEND_BATCH_MESSAGE (320): store a message."""

    code: ClassVar[int] = 10


class SendResponse(Response, kw_only=True, frozen=True):
    """Queue and offset of the message. A batch has its ids joined by commas and its first offset.

    Java clients fail on a reply without region and trace switch, so both are always set.
    """

    msg_id: str
    queue_id: Int32
    queue_offset: Int64
    transaction_id: str | None = None
    region_id: str = msgspec.field(default="DefaultRegion", name="MSG_REGION")
    trace_on: str = msgspec.field(default="true", name="TRACE_ON")


class SendRefusal(Response, kw_only=True, frozen=True):
    """The fields of a refused send, required by the same Java clients."""

    region_id: str = msgspec.field(default="DefaultRegion", name="MSG_REGION")
    trace_on: str = msgspec.field(default="true", name="TRACE_ON")


class ConsumerSendMsgBack(Request, kw_only=True, frozen=True):
    """CONSUMER_SEND_MSG_BACK (36): send back a message that a consumer failed to process.

    `offset` is the message's byte position in the commit log. `delay_level` 0 lets the broker
    choose, below 0 moves the message to the dead-letter queue at once. `reason` is Kourou's own: a
    line of text, stored with a dead letter.
    """

    code: ClassVar[int] = 36
    offset: Int64
    group: str
    delay_level: Int32
    origin_msg_id: str | None = None
    origin_topic: str | None = None
    unit_mode: bool = False
    max_reconsume_times: Int32 | None = None
    bname: str | None = None
    reason: str | None = None


class Target(msgspec.Struct, frozen=True, array_like=True):
    """One queue that a coalesced send writes to; `queue_id` -1 lets the broker choose."""

    topic: str
    queue_id: Int32


class SendRecords(Request, kw_only=True, frozen=True):
    """SEND_RECORDS (30001, Kourou's own): store many messages of many queues from one frame.

    The body is one part: the drafts, concatenated. A target is a queue of `targets`. `sizes` has
    each draft's size in bytes as u32, `target_of` the index of its target as u16, both
    little-endian; with an empty `target_of` all are in target 0. `attempt` counts from 1; from 2 on
    the broker looks for an earlier copy, and at 0: a first attempt of a client that cannot know
    whether the message was sent before. With `wait` False the broker replies before flush and
    replication. `contexts` are trace contexts of messages in addition to the one in the frame's
    prefix, 25 bytes each; more than SEND_CONTEXTS_MAX are ignored.
    """

    code: ClassVar[int] = 30001
    targets: list[Target] = msgspec.field(name="lanes")
    target_of: bytes = msgspec.field(name="laneOf", default=b"")
    sizes: bytes
    producer_group: str
    default_topic: str = ""
    default_topic_queue_nums: Int32 = 0
    attempt: Int32 = 1
    wait: bool = True
    contexts: bytes = b""


class SendRecordsResponse(Response, kw_only=True, frozen=True):
    """The result of each target of a coalesced send.

    `target_offsets` are the first queue offsets (-1 for a refused target); a target's records
    follow each other. `runs` are (index of the first accepted record in a run, its log position), a
    run being contiguous in the log. If the broker looked for duplicates, `runs` is empty, and
    `offsets`, `positions` and `queue_ids` have one entry a record, -1 where its target was refused.
    """

    target_codes: list[Int32] = msgspec.field(name="laneCodes")
    target_remarks: list[str] = msgspec.field(name="laneRemarks")
    target_offsets: list[Int64] = msgspec.field(name="laneOffsets")
    runs: list[tuple[Int64, Int64]]
    offsets: list[Int64] | None = None
    positions: list[Int64] | None = None
    queue_ids: list[Int32] | None = None


# -- request-reply messaging ----------------------------------------------------------------------


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


# -- transactions ---------------------------------------------------------------------------------


class EndTransaction(Request, kw_only=True, frozen=True):
    """END_TRANSACTION (37, usually oneway): resolve a half message.

    `tran_state_table_offset` is the half message's queue offset, `commit_log_offset` its position;
    `commit_or_rollback` is 0 unknown, 8 commit or 12 roll back.
    """

    code: ClassVar[int] = 37
    producer_group: str
    tran_state_table_offset: Int64
    commit_log_offset: Int64
    commit_or_rollback: Int32
    from_transaction_check: bool = False
    msg_id: str
    transaction_id: str | None = None
    bname: str | None = None


class CheckTransactionState(Request, kw_only=True, frozen=True):
    """CHECK_TRANSACTION_STATE (39, broker to client, oneway): check a half message's state."""

    code: ClassVar[int] = 39
    tran_state_table_offset: Int64
    commit_log_offset: Int64
    msg_id: str | None = None
    transaction_id: str | None = None
    offset_msg_id: str | None = None
    bname: str | None = None


class ResumeCheckHalfMessage(Request, kw_only=True, frozen=True):
    """RESUME_CHECK_HALF_MESSAGE (323): check a half message again after its checks ended."""

    code: ClassVar[int] = 323
    msg_id: str
    topic: str | None = None


# -- batch transactions ---------------------------------------------------------------------------


class GetBatchState(Request, kw_only=True, frozen=True):
    """GET_BATCH_STATE (30030): get the state of a query's batches at a broker."""

    code: ClassVar[int] = 30030
    query: str


class BatchStateResponse(Response, kw_only=True, frozen=True):
    """See kourou.model.transaction.BatchQuery; `coordinator` is empty if the query is unknown.

    While `decided` is above `resolved`, the body has the winners of `decided`.
    """

    broker_name: str
    coordinator: str = ""
    prepared: Int64 = -1
    decided: Int64 = -1
    resolved: Int64 = -1


class PrepareBatch(Request, kw_only=True, frozen=True):
    """PREPARE_BATCH (30031): record the messages of a batch that this broker holds.

    The broker then waits for the decision. The body has the winning attempt of each partition and
    the number of its messages on this broker.
    """

    code: ClassVar[int] = 30031
    query: str
    batch: Int64
    coordinator: str


class DecideBatch(Request, kw_only=True, frozen=True):
    """DECIDE_BATCH (30032): commit a batch, at the coordinator; the body has winners and counts.

    The reply is a BatchStateResponse with the winners that were decided first.
    """

    code: ClassVar[int] = 30032
    query: str
    batch: Int64


class ResolveBatch(Request, kw_only=True, frozen=True):
    """RESOLVE_BATCH (30033): store the messages of the winners in the body, discard all others.

    This covers all messages of the query up to this batch. A request does part of the work: send it
    again until nothing is left. `last`: the query ends with this batch.
    """

    code: ClassVar[int] = 30033
    query: str
    batch: Int64
    last: bool = False


class AbortBatch(Request, kw_only=True, frozen=True):
    """ABORT_BATCH (30034): discard the messages of attempts whose names begin with `attempts`.

    Prepared messages stay until their batch is decided.
    """

    code: ClassVar[int] = 30034
    query: str
    attempts: str


class BatchStepResponse(Response, kw_only=True, frozen=True):
    """The messages resolved by this request, and the half messages that are left."""

    committed: Int64
    discarded: Int64
    left: Int64
