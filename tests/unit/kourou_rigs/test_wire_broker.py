"""The broker in memory keeps and answers what a client needs."""

from __future__ import annotations

import pytest

from kourou.errors import Code
from kourou.protocol.messages import groups, pulls, sends
from kourou.protocol.record.layout import encode_host
from kourou.protocol.record.message_record import encode_draft
from kourou_rigs.wire_broker import Answer, WireBroker


class Wire:
    def __init__(self) -> None:
        self.replies: list[tuple[int, Answer]] = []

    def reply(self, correlation, answer):
        self.replies.append((correlation, answer))

    def hear(self, request, body=b""):
        raise AssertionError("nobody is told anything here")


@pytest.fixture
def broker():
    return WireBroker("b", "b:20911", 1, {"T": (1, 1)})


def draft(body=b"x"):
    return encode_draft(
        topic=b"T",
        queue_id=0,
        body=body,
        properties=b"",
        born_timestamp=1,
        born_host=encode_host(("127.0.0.1", 0)),
    )


def send(*bodies):
    drafts = [draft(body) for body in bodies]
    sizes = b"".join(len(one).to_bytes(4, "little") for one in drafts)
    request = sends.SendRecords(targets=[sends.Target("T", 0)], sizes=sizes, producer_group="p")
    return request, b"".join(drafts)


def pull(offset, flags=0):
    return pulls.PullMessage(
        consumer_group="g",
        topic="T",
        queue_id=0,
        queue_offset=offset,
        max_msg_nums=2,
        sys_flag=flags,
        suspend_timeout_millis=60_000,
    )


def test_what_is_sent_is_stored_and_pulled(broker):
    answer = broker.answer(Wire(), 1, *send(b"1", b"2", b"3"))
    assert answer.header.target_offsets == [0]
    assert [message.body for message in broker.stored("T")] == [b"1", b"2", b"3"]
    pulled = broker.answer(Wire(), 2, pull(1), b"")
    assert (pulled.code, pulled.header.next_begin_offset) == (0, 3)
    for offset, code in ((3, Code.PULL_NOT_FOUND), (4, Code.PULL_OFFSET_MOVED)):
        assert broker.answer(Wire(), 3, pull(offset), b"").code == code


async def test_a_held_pull_is_answered_by_the_next_send(broker):
    wire = Wire()
    assert broker.answer(wire, 7, pull(0, pulls.PullFlag.SUSPEND), b"") is None
    broker.answer(Wire(), 8, *send(b"1"))
    [(correlation, answer)] = wire.replies
    assert (correlation, answer.code, broker.holds) == (7, 0, [])


def test_progress(broker):
    ask = pulls.QueryConsumerOffset(consumer_group="g", topic="T", queue_id=0)
    assert broker.answer(Wire(), 1, ask, b"").code == Code.QUERY_NOT_FOUND
    commit = pulls.UpdateConsumerOffset(consumer_group="g", topic="T", queue_id=0, commit_offset=5)
    broker.answer(Wire(), 2, commit, b"")
    assert broker.answer(Wire(), 3, ask, b"").header.offset == 5


def test_an_intercept_comes_first(broker):
    broker.intercept = lambda _: Answer(Code.SYSTEM_BUSY)
    assert broker.answer(Wire(), 1, *send(b"1")).code == Code.SYSTEM_BUSY
    assert broker.stored("T") == []


def test_what_it_does_not_know(broker):
    request = sends.EndTransaction(
        producer_group="p",
        tran_state_table_offset=0,
        commit_log_offset=0,
        commit_or_rollback=0,
        msg_id="x",
    )
    assert broker.answer(Wire(), 1, request, b"").code == Code.REQUEST_CODE_NOT_SUPPORTED
    assert broker.seen == [request]
    nobody = groups.GetConsumerListByGroup(consumer_group="g")
    assert broker.answer(Wire(), 2, nobody, b"").code == Code.SYSTEM_ERROR
