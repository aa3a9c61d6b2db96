"""Retries and dead letters of a broker in memory."""

from __future__ import annotations

from kourou.model.message import Property, StoredMessage
from kourou.model.names import RETRY_PREFIX, dlq_topic, retry_topic
from kourou.protocol.messages.sends import ConsumerSendMsgBack, SendMessage
from kourou.protocol.record.layout import encode_host
from kourou.protocol.record.message_id import encode_offset_id
from kourou.protocol.record.message_record import encode_draft
from kourou.protocol.record.properties import encode_properties

Target = tuple[str, int]


def sent_again(request: SendMessage, body: bytes, times_max: int) -> tuple[Target, bytes]:
    """The draft of a single send; a retry beyond the last attempt becomes a dead letter."""
    times = request.reconsume_times or 0
    if request.max_reconsume_times is not None:
        times_max = request.max_reconsume_times
    topic = request.topic
    if topic.startswith(RETRY_PREFIX) and times >= times_max:
        topic = dlq_topic(topic.removeprefix(RETRY_PREFIX))
    target = (topic, 0 if topic != request.topic else max(0, request.queue_id))
    draft = encode_draft(
        topic=topic.encode(),
        queue_id=target[1],
        body=body,
        properties=(request.properties or "").encode(),
        flag=request.flag,
        sys_flag=request.sys_flag,
        born_timestamp=request.born_timestamp,
        born_host=encode_host(("10.9.9.9", 1)),
        reconsume_times=times,
    )
    return target, draft


def taken_back(
    request: ConsumerSendMsgBack, found: StoredMessage, times_max: int
) -> tuple[Target, bytes]:
    """The draft of a message that a consumer sends back: a retry, or a dead letter."""
    if request.max_reconsume_times is not None:
        times_max = request.max_reconsume_times
    dead = request.delay_level < 0 or found.reconsume_times >= times_max
    properties = dict(found.properties)
    properties.setdefault(Property.RETRY_TOPIC, found.topic)
    properties.setdefault(
        Property.ORIGIN_MESSAGE_ID, encode_offset_id(found.store_host, found.position)
    )
    if dead and request.reason:
        properties[Property.DLQ_REASON] = request.reason
    topic = dlq_topic(request.group) if dead else retry_topic(request.group)
    draft = encode_draft(
        topic=topic.encode(),
        queue_id=0,
        body=found.body,
        properties=encode_properties(properties),
        flag=found.flag,
        born_timestamp=found.born_timestamp,
        born_host=encode_host(found.born_host),
        reconsume_times=found.reconsume_times + 1,
    )
    return (topic, 0), draft
