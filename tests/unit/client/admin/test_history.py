"""History, states and undo, as an operator's program asks for them."""

from __future__ import annotations

import msgspec
import pytest

from kourou.client.admin.history import HistoryEvent, HistoryPage
from kourou.errors import BadRequest, Code, DecodeError, MetadataUnavailable, Rejected
from kourou.protocol.bodies.broker_bodies import EventView, encode_event_views
from kourou.protocol.messages.broker_admin import (
    GetHistory,
    GetHistoryResponse,
    GetStateAt,
    GetStateAtResponse,
    Undo,
    UndoResponse,
)
from kourou_rigs.wire_faults import Answer, always

EVENT = EventView(
    offset=7,
    at_ms=1_000,
    actor="ann",
    reason="too many",
    trace_id="0af7",
    aggregate="setting/traceOn",
    event=msgspec.Raw(b'{"type":"SettingChanged","name":"traceOn","value":true,"before":false}'),
    undoes=5,
)
DECISION = HistoryEvent(
    "broker-a",
    7,
    1_000,
    "setting/traceOn",
    "SettingChanged",
    {"name": "traceOn", "value": True, "before": False},
    "ann",
    "too many",
    "0af7",
    5,
)
REPLIES = {
    GetHistory: Answer(
        header=GetHistoryResponse(before_offset=7, begin_offset=3, end_offset=9),
        body=encode_event_views([EVENT]),
    ),
    GetStateAt: Answer(header=GetStateAtResponse(next_offset=8, at_ms=1_000), body=b'{"a":1}'),
    Undo: Answer(
        header=UndoResponse(first_offset=7, next_offset=8), body=encode_event_views([EVENT])
    ),
}


def replies(broker, table) -> None:
    for kind, reply in table.items():
        broker.faults[kind] = always(reply)


@pytest.fixture
def asked(broker):
    """Lists what reaches the broker, which replies as one with an event database does."""
    replies(broker, REPLIES)
    return lambda: [one for one in broker.seen if type(one) in REPLIES]


async def test_a_page_of_history(admin, asked):
    page = await admin.history.of(
        "topic/orders", before=9, until_ms=5, types={"TopicPut", "TopicDeleted"}, count_max=2
    )
    assert page == HistoryPage([DECISION], 7, 3)
    assert asked() == [
        GetHistory(
            aggregate="topic/orders",
            before_offset=9,
            until_ms=5,
            types=["TopicDeleted", "TopicPut"],
            max_count=2,
        )
    ]
    await admin.history.of()
    assert asked()[1] == GetHistory(max_count=100)


async def test_wrong_arguments_reach_no_broker(admin, asked):
    for call in (
        admin.history.of("orders"),
        admin.history.of("topic/"),
        admin.history.of(count_max=0),
        admin.history.of(count_max=1_001),
        admin.history.of(types=["a b"]),
        admin.history.state_at("log/retention"),
        admin.history.state_at(at_ms=1, offset=1),
        admin.history.undo(-1),
        admin.history.undo(1, reason="x" * 1_025),
    ):
        with pytest.raises(BadRequest):
            await call
    assert asked() == []


async def test_which_broker_is_meant(cluster, admin, asked):
    cluster.broker("broker-b")
    with pytest.raises(
        BadRequest,
        match=r"its own history.*choose one of broker-a, broker-b",
    ):
        await admin.history.of()
    with pytest.raises(BadRequest, match=r"broker 'broker-x' is unknown.*broker-a, broker-b"):
        await admin.history.undo(1, broker="broker-x")
    assert asked() == []
    assert (await admin.history.of(broker="broker-a")).decisions == [DECISION]


@pytest.mark.parametrize(
    ("code", "error"),
    [(Code.METADATA_UNAVAILABLE, MetadataUnavailable), (Code.SYSTEM_ERROR, Rejected)],
)
async def test_what_the_broker_refuses_is_raised(broker, admin, code, error):
    replies(broker, dict.fromkeys(REPLIES, Answer(code, remark="so it is")))
    for call in (admin.history.of(), admin.history.state_at(), admin.history.undo(1)):
        with pytest.raises(error, match="so it is"):
            await call


async def test_an_answer_that_is_none_is_a_decode_error(broker, admin):
    replies(broker, dict.fromkeys(REPLIES, Answer()))
    for call in (admin.history.of(), admin.history.state_at(), admin.history.undo(1)):
        with pytest.raises(DecodeError):
            await call
