"""What members tell of themselves, and looks into a queue."""

import msgspec
import pytest

from kourou.errors import DecodeError
from kourou.model.subscription import Subscription
from kourou.model.topic import MessageQueue
from kourou.protocol.bodies.status_bodies import (
    ConsumerRunningInfo,
    ConsumerStatus,
    ConsumeStatus,
    DirectResult,
    OffsetMoved,
    ProcessQueueInfo,
    QueueLook,
    QueueUnit,
    decode_consumer_running_info,
    decode_consumer_status,
    decode_direct_result,
    decode_offset_moved,
    decode_queue_look,
    encode_consumer_running_info,
    encode_consumer_status,
    encode_direct_result,
    encode_offset_moved,
    encode_queue_look,
)

QUEUE = MessageQueue("T", "b", 3)
KEY = b'{"brokerName":"b","queueId":3,"topic":"T"}'


def test_where_members_stand():
    status = ConsumerStatus({QUEUE: 5}, {"c1": {QUEUE: 6}, "c2": {}})
    body = encode_consumer_status(status)
    assert body == (
        b'{"consumerTable":{"c1":{' + KEY + b':6},"c2":{}},"messageQueueTable":{' + KEY + b":5}}"
    )
    assert decode_consumer_status(body) == status
    assert decode_consumer_status(b"{}") == ConsumerStatus()
    with pytest.raises(DecodeError):
        decode_consumer_status(b"{consumerTable:{c1:5}}")


def test_how_a_member_runs():
    info = ConsumerRunningInfo(
        {"PROP_CLIENT_VERSION": "V4_9_8"},
        (Subscription("T", "A", tags=frozenset("A"), codes=frozenset({65}), version=2),),
        {QUEUE: ProcessQueueInfo(commit_offset=3, cached_msg_size_in_mi_b=2, droped=True)},
        {"T": ConsumeStatus(consume_ok_tps=1.5, pull_rt=2.0, consume_failed_msgs=3)},
        "threads",
    )
    body = encode_consumer_running_info(info)
    assert decode_consumer_running_info(body) == info
    for spelling in (b'"cachedMsgSizeInMiB":2', b'"droped":true', b'"consumeOKTPS":1.5', KEY):
        assert spelling in body
    assert b"jstack" not in encode_consumer_running_info(ConsumerRunningInfo())
    for empty in (b"{}", b'{"properties":null,"subscriptionSet":null,"mqTable":null}'):
        assert decode_consumer_running_info(empty) == ConsumerRunningInfo()
    with pytest.raises(DecodeError):
        decode_consumer_running_info(b"{subscriptionSet:{}}" + b" ")
    with pytest.raises(DecodeError):
        decode_consumer_running_info(b"{subscriptionSet:[{}]}")


def test_what_came_of_a_direct_consumption():
    result = DirectResult(consume_result="CR_SUCCESS", spent_time_mills=5)
    body = encode_direct_result(result)
    assert msgspec.json.decode(body) == {
        "autoCommit": True, "consumeResult": "CR_SUCCESS", "order": False, "spentTimeMills": 5,
    }  # fmt: skip
    assert decode_direct_result(body) == result


@pytest.mark.parametrize(
    "look",
    [
        QueueLook((), 0, 0),
        QueueLook(
            (QueueUnit(physic_offset=5, physic_size=100, tags_code=-7), QueueUnit(
                physic_offset=105, physic_size=90, eval=False, msg="text")),
            1,
            3,
            Subscription("T"),
            "filter",
        ),
    ],
)  # fmt: skip
def test_looks_into_a_queue(look):
    body = encode_queue_look(look)
    assert decode_queue_look(body) == look
    assert b"null" not in body


def test_offset_moved():
    moved = OffsetMoved("G", QUEUE, 100, 7)
    body = encode_offset_moved(moved)
    assert body == (
        b'{"consumerGroup":"G","messageQueue":' + KEY + b',"offsetNew":7,"offsetRequest":100}'
    )
    assert decode_offset_moved(body) == moved
