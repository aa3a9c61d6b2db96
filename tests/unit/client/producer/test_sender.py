"""What a producer does when a broker does not take a message."""

from __future__ import annotations

import asyncio
import logging

import pytest

from kourou import SendStatus
from kourou.errors import (
    Code,
    DiskFull,
    MessageIllegal,
    Rejected,
    Throttled,
    Unavailable,
)
from kourou.protocol.messages.quotas import FlowControlled
from kourou.protocol.messages.sends import SendRecords, SendRecordsResponse
from kourou_rigs.wire_faults import Answer, Cut, Silence, always


@pytest.mark.feature("F168", "F176")
@pytest.mark.parametrize(
    "code", [1, 14, 16, 17, 204, 205, Code.SYSTEM_BUSY, Code.DISK_FULL, Code.STORE_FAULTED]
)
async def test_a_broker_that_does_not_take_it_is_left_for_another(cluster, producing, code):
    bad, good = cluster.broker("broker-a"), cluster.broker("broker-b")
    cluster.topics["T"] = (2, 2)
    bad.faults[SendRecords] = always(Answer(code, remark="not now"))
    async with producing() as mq:
        results = [await mq.send("T", b"x") for _ in range(4)]
    assert {result.queue.broker_name for result in results} == {"broker-b"}
    assert len(good.stored("T")) == 4
    assert 2 in {frame.attempt for frame in good.frames}


def over_quota(pause_ms: int = 5) -> Answer:
    return Answer(Code.FLOW_CONTROL, FlowControlled(retry_after_ms=pause_ms), remark="over")


async def test_a_send_over_a_quota_is_sent_again_until_it_is_stored(cluster, producing):
    cluster.topics["T"] = (1, 1)
    broker, other = cluster.broker("broker-a"), cluster.broker("broker-b")
    for one in (broker, other):
        one.faults[SendRecords] = [over_quota()] * 6
    async with producing() as mq:
        result = await mq.send("T", b"x")
    assert result.status is SendStatus.SEND_OK
    assert len(broker.frames + other.frames) == 1
    sent = [one for one in broker.seen + other.seen if isinstance(one, SendRecords)]
    assert len(sent) == 7, "more than three attempts, all at one broker"
    assert not broker.frames or not other.frames


async def test_a_send_over_a_quota_ends_with_its_time(one_queue, producing):
    one_queue.faults[SendRecords] = always(over_quota(40))
    async with producing() as mq:
        with pytest.raises(Throttled, match="over") as over:
            await mq.send("T", b"x", timeout_ms=200)
    assert over.value.retry_after_ms == 40
    assert one_queue.frames == []


async def test_a_pinned_message_over_a_quota_is_not_overtaken(one_queue, producing):
    one_queue.faults[SendRecords] = [over_quota()]
    async with producing() as mq:
        with pytest.raises(Throttled, match="over"):
            await mq.send("T", b"x", order_key="a")
        assert (await mq.send("T", b"x", order_key="a")).status is SendStatus.SEND_OK


@pytest.mark.feature("F168")
@pytest.mark.parametrize("code", [13, 3, 23])
async def test_what_the_sender_must_change_is_not_tried_again(cluster, producing, code):
    broker = cluster.broker()
    broker.faults[SendRecords] = always(Answer(code, remark="no"))
    async with producing() as mq:
        with pytest.raises(Rejected):
            await mq.send("T", b"x")
    assert len(broker.requests(SendRecords)) == 1


@pytest.mark.feature("F168", "F230")
async def test_a_timeout_is_not_tried_again(cluster, producing):
    bad, good = cluster.broker("broker-a"), cluster.broker("broker-b")
    cluster.topics["T"] = (1, 1)
    bad.faults[SendRecords] = always(Silence)
    async with producing() as mq:
        outcomes = await asyncio.gather(
            *(mq.send("T", b"x") for _ in range(2)), return_exceptions=True
        )
    assert sorted(type(one).__name__ for one in outcomes) == ["SendResult", "TimedOut"]
    assert len(good.stored("T")) == 1


@pytest.mark.feature("F176", "F230")
async def test_after_a_lost_connection_the_same_message_is_sent_again(one_queue, producing):
    one_queue.faults[SendRecords] = [Cut]
    async with producing() as mq:
        result = await mq.send("T", b"x")
    frames = one_queue.requests(SendRecords)
    assert [frame.attempt for frame in frames] == [1, 2]
    assert [stored.message_id for stored in one_queue.stored("T")] == [result.message_id]


async def test_a_message_that_moves_carries_its_new_queue(cluster, producing):
    bad, good = cluster.broker("broker-a"), cluster.broker("broker-b")
    cluster.topics["T"] = (3, 3)
    bad.faults[SendRecords] = always(Answer(14))
    async with producing() as mq:
        results = [await mq.send("T", b"x") for _ in range(9)]
    assert {one.queue_id for one in good.stored("T")} == {one.queue.queue_id for one in results}
    for number in range(3):
        assert all(one.queue_id == number for one in good.stored("T", number))


async def test_a_pinned_message_has_one_attempt_at_a_leader(cluster, producing):
    broker = cluster.broker()
    broker.faults[SendRecords] = always(Answer(Code.DISK_FULL, remark="later"))
    async with producing() as mq:
        with pytest.raises(DiskFull):
            await mq.send("T", b"x", order_key="k")
    assert len(broker.requests(SendRecords)) == 1


async def test_a_batch_moves_as_a_whole(cluster, producing):
    bad, good = cluster.broker("broker-a"), cluster.broker("broker-b")
    cluster.topics["T"] = (2, 2)
    bad.faults[SendRecords] = always(Answer(14))
    async with producing() as mq:
        for _ in range(4):
            results = await mq.send_batch("T", [b"1", b"2", b"3"])
            assert len({result.queue for result in results}) == 1
    assert not bad.stored("T")
    assert {len(frame.sizes) // 4 for frame in good.frames} == {3}


@pytest.mark.feature("F169", "F295", "F167")
@pytest.mark.parametrize("status", [SendStatus.FLUSH_DISK_TIMEOUT, SendStatus.FLUSH_SLAVE_TIMEOUT])
@pytest.mark.parametrize("resend", [False, True])
async def test_stored_but_not_yet_safe(cluster, producing, resend, status):
    """It is handed to the caller as it is; nobody sends it again, unless told to, and elsewhere."""
    unsafe, safe = cluster.broker("broker-a"), cluster.broker("broker-b")
    cluster.topics["T"] = (1, 1)

    def warn(request):
        answer = Answer(Code[status.name])
        answer.header = SendRecordsAnswer
        return answer

    SendRecordsAnswer = SendRecordsResponse(
        target_codes=[0], target_remarks=[""], target_offsets=[7], runs=[(0, 70)]
    )
    unsafe.faults[SendRecords] = always(warn)
    async with producing(retry_another_broker_when_not_store_ok=resend) as mq:
        results = [await mq.send("T", b"x") for _ in range(2)]
    statuses = {result.status for result in results}
    if resend:
        assert statuses == {SendStatus.SEND_OK}
        assert len(safe.stored("T")) == 2
    else:
        assert statuses == {SendStatus.SEND_OK, status}
        assert len(safe.stored("T")) == 1
    sent = unsafe.requests(SendRecords)
    assert [frame.attempt for frame in sent] == [1] * len(sent), "never there again"


@pytest.mark.fault
async def test_a_broker_that_came_back_at_another_address(cluster, broker, producing):
    async with producing() as mq:
        await mq.send("T", b"before")
        cluster.down.add(broker.address)
        del cluster.brokers[broker.address]
        broker.address = "broker-a:30911"
        cluster.brokers[broker.address] = broker
        result = await mq.send("T", b"after")
    assert {stored.body for stored in broker.stored("T")} == {b"before", b"after"}
    assert broker.frames[-1].attempt == 1, "to the old address it was never sent"
    assert result.queue.broker_name == "broker-a"


async def test_no_queue_takes_writes(cluster, producing):
    cluster.broker()
    cluster.topics["T"] = (2, 2)
    cluster.perms["T"] = 4
    async with producing() as mq:
        with pytest.raises(Unavailable, match="has no writable queue"):
            await mq.send("T", b"x")


@pytest.mark.feature("F368")
async def test_every_outcome_is_logged_with_its_keys(cluster, producing, caplog):
    broker = cluster.broker()
    caplog.set_level(logging.DEBUG, "kourou.client.send")
    async with producing() as mq:
        await mq.send("T", b"", keys="order-1")
        broker.faults[SendRecords] = always(Answer(13, remark="too long"))
        with pytest.raises(MessageIllegal):
            await mq.send("T", b"", keys="order-2")
    text = caplog.text
    assert "keys 'order-1': SEND_OK" in text
    assert "keys 'order-2'" in text
    assert "too long" in text


@pytest.mark.feature("F368")
async def test_a_setting_raises_these_lines_to_info(cluster, producing, caplog):
    cluster.broker()
    caplog.set_level(logging.INFO, "kourou.client.send")
    async with producing() as mq:
        await mq.send("T", b"", keys="quiet")
    async with producing(log_messages=True) as mq:
        await mq.send("T", b"", keys="loud")
    assert "keys 'loud': SEND_OK" in caplog.text
    assert "quiet" not in caplog.text
