"""A message that no consumer can process: its whole way, by a cluster's own clock."""

from __future__ import annotations

import queue
from datetime import timedelta

import pytest

from kourou.model.message import DELAY_LEVELS_MS
from kourou.protocol.record.message_id import decode_offset_id
from kourou.protocol.record.message_record import decode_record

GAPS_MS = DELAY_LEVELS_MS[2:]
TRIES_MAX = 200
"""Tenths of a second until a message that is due has come to its handler."""


@pytest.mark.feature("F213", "F216", "F221", "F222", "F224")
def test_a_dead_letter_s_whole_way(kourou_cluster) -> None:
    """16 gaps, 4 h 45 m 40 s: they pass at once, so that all of it takes half a second.

    After each the consumer has lost its connection, its heartbeats are old, and the message is due.
    """
    cluster = kourou_cluster(brokers=1)
    topic = cluster.create_topic("flights")
    tries: queue.Queue[tuple[int, int]] = queue.Queue()

    def handler(message) -> None:
        tries.put((message.reconsume_times, cluster.clock.now_ms))
        raise ValueError("no such flight")

    view = cluster.each()["broker-a"]

    def given_back() -> int:
        return sum(view.sent_back.values()) + sum(view.dead_letters.values())

    def next_try() -> tuple[int, int]:
        for _ in range(TRIES_MAX):
            try:
                return tries.get_nowait()
            except queue.Empty:
                cluster.clock.advance(0.1)
        raise AssertionError("the message did not come again")

    with cluster.client("g") as mq, mq.listen(topic, handler):
        sent = mq.send(topic, b"bad", keys="AF447")
        began_ms = tried_ms = 0
        for times in range(17):
            attempt, at_ms = next_try()
            assert attempt == times
            began_ms = began_ms or at_ms
            if times:
                gap_ms = at_ms - tried_ms
                assert GAPS_MS[times - 1] <= gap_ms <= GAPS_MS[times - 1] + 20_000
            tried_ms = at_ms
            assert cluster._thread.run(cluster.until(lambda n=times: given_back() > n, 60))
            if times < 16:
                cluster.clock.leap(timedelta(milliseconds=GAPS_MS[times]))
        assert 0 <= at_ms - began_ms - sum(GAPS_MS) < 120_000
    [dead] = view.store_view.read_queue(
        "%DLQ%g", 0, 0, max_messages=9, max_bytes=1 << 20, codes=None, below=1 << 62
    ).records
    message = decode_record(dead)
    assert message.message_id == sent.message_id
    assert (message.body, message.reconsume_times) == (b"bad", 17)
    assert message.properties["RETRY_TOPIC"] == topic
    first = decode_offset_id(message.properties["ORIGIN_MESSAGE_ID"])[1]
    assert first == decode_offset_id(sent.offset_message_id)[1]
    assert "no such flight" in message.properties["DLQ_REASON"]
