"""A waterfall is made of what was noted; what nobody noted is not made up."""

from __future__ import annotations

from kourou.client.admin.message_tracks import MessageTrack, TrackKind
from kourou.model.topic import MessageQueue
from kourou.protocol.record.message_trace import Consumed, ConsumeStarted, ContextCode, TraceKind
from kourou.protocol.record.message_trace import TransactionEnded as Ended
from kourou_console.api.messages import spans_of
from kourou_console.messages.views import host_text
from kourou_rigs.queues_read import message_at

MESSAGE = message_at(MessageQueue("t", "broker-a", 0), 3, stored_ms=1_000)


def begun(request_id: str, at_ms: int, times: int) -> ConsumeStarted:
    return ConsumeStarted(at_ms, "", "g", request_id, "id", times, "")


def test_calls_of_handlers_and_how_they_ended():
    failed = Consumed("r1", "id", 7, False, "", ContextCode.EXCEPTION)
    spans = spans_of(MESSAGE, [begun("r2", 3_000, 1), begun("r1", 2_000, 0), failed], [])
    assert [(one.what, one.start_ms, one.duration_ms, one.ok) for one in spans] == [
        ("send", 1_000, 0, True),
        ("store", 1_000, None, True),
        ("consume", 2_000, 7, False),
        ("consume", 3_000, None, None),
    ]
    assert [one.note for one in spans[2:]] == [
        "attempt 1, EXCEPTION",
        "attempt 2, its end was not noted",
    ]


def test_a_sender_without_a_trace_is_its_address_as_far_as_the_record_has_it():
    """Kourou's own clients write no port, for they encode the record before they dial."""
    assert [one.who for one in spans_of(MESSAGE, [], []) if one.what == "send"] == ["127.0.0.1:1"]
    assert host_text(("127.0.0.1", 0)) == "127.0.0.1"
    assert host_text(("::1", 0)) == "::1"
    assert host_text(("::1", 7)) == "[::1]:7"


def test_a_group_without_a_trace_has_no_times():
    tracks = [
        MessageTrack("g", TrackKind.NOT_CONSUME_YET, False, 2),
        MessageTrack("h", TrackKind.PULL),
    ]
    spans = spans_of(MESSAGE, [begun("r", 2_000, 0)], tracks)
    assert [(one.who, one.start_ms, one.ok) for one in spans[3:]] == [("h", None, None)]


def test_a_group_that_filtered_it_did_not_consume_it():
    tracks = [
        MessageTrack("f", TrackKind.CONSUMED_BUT_FILTERED, True, 4, "filtered by SQL92"),
        MessageTrack("h", TrackKind.UNKNOWN, True, 4, "its filter is not asked"),
        MessageTrack("z", TrackKind.CONSUMED, True, 4),
    ]
    spans = [one for one in spans_of(MESSAGE, [], tracks) if one.what == "consume"]
    assert [(one.who, one.ok) for one in spans] == [("f", None), ("h", None), ("z", True)]
    assert spans[0].note == "CONSUMED_BUT_FILTERED: filtered by SQL92"


def test_the_end_of_a_transaction():
    end = Ended(
        1_500,
        "",
        "sellers",
        "t",
        "id",
        "",
        "",
        "",
        TraceKind.COMMIT,
        "tx",
        "ROLLBACK_MESSAGE",
        True,
    )
    found = next(one for one in spans_of(MESSAGE, [end], []) if one.what == "transaction")
    assert (found.ok, found.note) == (False, "ROLLBACK_MESSAGE after a question")
