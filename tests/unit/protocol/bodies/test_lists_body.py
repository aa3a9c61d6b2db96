"""Lists of clients, connections, producers and locked queues."""

import msgspec
import pytest

from kourou.errors import DecodeError
from kourou.model.limits import (
    LOCK_BYTES_MAX,
    TOPIC_LENGTH_MAX,
    TOPIC_QUEUES_MAX,
)
from kourou.model.subscription import ConsumeType, MessageModel, Subscription
from kourou.model.topic import MessageQueue
from kourou.protocol.bodies.lists_body import (
    ClientConnection,
    ConsumerConnection,
    LockBatch,
    ProducerConnection,
    ProducerInfo,
    decode_consumer_connection,
    decode_consumer_ids,
    decode_group_list,
    decode_lock_batch,
    decode_locked_queues,
    decode_producer_connection,
    decode_producer_table,
    encode_consumer_connection,
    encode_consumer_ids,
    encode_group_list,
    encode_lock_batch,
    encode_locked_queues,
    encode_producer_connection,
    encode_producer_table,
)

QUEUES = (MessageQueue("T", "b", 0), MessageQueue("T", "b", 3))
CONNECTIONS = [ClientConnection("c", "10.0.0.1:5", "GO", 317)]


def test_names():
    assert encode_consumer_ids(["a", "b"]) == b'{"consumerIdList":["a","b"]}'
    assert decode_consumer_ids(b'{"consumerIdList":["a","b"]}') == ["a", "b"]
    assert decode_consumer_ids(b"{}") == []
    assert decode_group_list(encode_group_list(iter("ab"))) == ["a", "b"]


def test_consumer_connections():
    value = ConsumerConnection(
        CONNECTIONS,
        {"T": Subscription("T", "A", tags=frozenset("A"), codes=frozenset({65}), version=3)},
        ConsumeType.CONSUME_ACTIVELY,
        MessageModel.BROADCASTING,
    )
    body = encode_consumer_connection(value)
    assert decode_consumer_connection(body) == value
    assert msgspec.json.decode(body)["connectionSet"] == [
        {"clientAddr": "10.0.0.1:5", "clientId": "c", "language": "GO", "version": 317}
    ]
    assert decode_consumer_connection(b"{}") == ConsumerConnection([], {})
    with pytest.raises(DecodeError, match="ConsumeType"):
        decode_consumer_connection(b'{"consumeType":"SIDEWAYS"}')


def test_producer_connections():
    value = ProducerConnection(CONNECTIONS)
    assert decode_producer_connection(encode_producer_connection(value)) == value
    unnamed = b'{"connectionSet":[{"clientAddr":"a","clientId":"c","language":null}]}'
    assert decode_producer_connection(unnamed).connections == [
        ClientConnection("c", "a", "OTHER", 0)
    ]


def test_producer_tables():
    table = {"P": [ProducerInfo("c", "10.0.0.1", "JAVA", 409, 1795227677562)], "empty": []}
    body = encode_producer_table(table)
    assert decode_producer_table(body) == table
    assert b'"remoteIP":"10.0.0.1"' in body


def test_locks():
    batch = LockBatch("G", "c", QUEUES)
    assert decode_lock_batch(encode_lock_batch(batch)) == batch
    assert decode_locked_queues(encode_locked_queues(QUEUES)) == QUEUES
    assert encode_locked_queues([]) == b'{"lockOKMQSet":[]}'
    assert decode_locked_queues(b"{}") == ()
    with pytest.raises(DecodeError, match="consumerGroup"):
        decode_lock_batch(b'{"clientId":"c"}')
    queues = [MessageQueue("t" * TOPIC_LENGTH_MAX, "broker-a", n) for n in range(TOPIC_QUEUES_MAX)]
    whole = encode_lock_batch(LockBatch("G", "c", queues))
    assert len(decode_lock_batch(whole).queues) == TOPIC_QUEUES_MAX
    with pytest.raises(DecodeError, match="it has over 4194304 bytes"):
        decode_lock_batch(b" " * (LOCK_BYTES_MAX + 1))
