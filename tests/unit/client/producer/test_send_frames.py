"""Messages become frames, and answers become outcomes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kourou.client.producer.drafts import DraftDestination
from kourou.client.producer.pending_sends import PendingSend, SendTarget, Terms
from kourou.client.producer.send_frames import frames, gather, outcomes_of, request_of
from kourou.errors import Code, UnknownOutcome
from kourou.model.limits import FRAME_RECORD_BYTES_MAX, FRAME_RECORDS_MAX
from kourou.model.message import SendResult, SendStatus
from kourou.model.topic import MessageQueue
from kourou.protocol.messages.sends import SendRecordsResponse

USUAL = Terms(10_000, 3)
HOST_TEXT = "7F000001000051AF"


def target(number: int, terms: Terms = USUAL, address: str = "a:1") -> SendTarget:
    queue = MessageQueue("T", "b", number)
    return SendTarget(
        queue, address, DraftDestination(b"T", number, "c"), terms, host_text=HOST_TEXT
    )


def pending_send(where: SendTarget, draft: bytes = b"draft", key: str = "U") -> PendingSend:
    return PendingSend(draft, key, where, None, None, 1_000)


def one_frame(messages):
    [frame] = frames(gather(messages))
    return frame


def response(frame, **changes) -> SendRecordsResponse:
    fields = {
        "target_codes": [0] * len(frame.targets),
        "target_remarks": [""] * len(frame.targets),
        "target_offsets": [100 * (n + 1) for n in range(len(frame.targets))],
        "runs": [(0, 5_000)],
    }
    return SendRecordsResponse(**{**fields, **changes})


def test_one_queue_needs_no_numbers():
    frame = one_frame([pending_send(target(0))])
    request, _ = request_of(frame, producer_group="g", default_topic="", default_topic_queue_nums=0)
    assert request.target_of == b""


def test_brokers_and_terms_are_kept_apart():
    impatient = Terms(100, 1)
    found = list(
        frames(
            gather(
                [
                    pending_send(target(0)),
                    pending_send(target(0, address="b:1")),
                    pending_send(target(0, impatient)),
                ]
            )
        )
    )
    assert [(frame.address, frame.terms) for frame in found] == [
        ("a:1", USUAL),
        ("b:1", USUAL),
        ("a:1", impatient),
    ]


def test_a_queue_has_one_target_in_a_frame_even_after_a_route_change():
    before, after = target(0), target(0)
    frame = one_frame(
        [pending_send(before, b"1"), pending_send(after, b"2"), pending_send(before, b"3")]
    )
    assert len(frame.targets) == 1
    assert [message.draft for message in frame.messages] == [b"1", b"3", b"2"]


def test_frames_are_cut_at_their_number_of_records():
    where = target(0)
    messages = [pending_send(where, key=str(number)) for number in range(FRAME_RECORDS_MAX + 1)]
    first, second = frames(gather(messages))
    assert (len(first.messages), len(second.messages)) == (FRAME_RECORDS_MAX, 1)
    assert [message.unique_key for message in [*first.messages, *second.messages]] == [
        message.unique_key for message in messages
    ]


def test_frames_are_cut_at_their_bytes_and_one_record_always_fits():
    where = target(0)
    large = bytes(FRAME_RECORD_BYTES_MAX + 1)
    messages = [pending_send(where, b"x"), pending_send(where, large), pending_send(where, b"y")]
    assert [len(frame.messages) for frame in frames(gather(messages))] == [1, 1, 1]


@given(
    picks=st.lists(st.tuples(st.integers(0, 4), st.integers(1, 2_000_000)), max_size=60),
)
def test_nothing_is_lost_and_lanes_keep_their_order(picks):
    targets = [target(number) for number in range(5)]
    payload = bytes(2_000_000)
    messages = [
        pending_send(targets[number], payload[:size], key=str(index))
        for index, (number, size) in enumerate(picks)
    ]
    found = [message for frame in frames(gather(messages)) for message in frame.messages]
    assert sorted(found, key=id) == sorted(messages, key=id)
    for where in targets:
        expected = [message for message in messages if message.target is where]
        assert [message for message in found if message.target is where] == expected
    for frame in frames(gather(messages)):
        assert len({one.queue for one in frame.targets}) == len(frame.targets)
        assert sum(frame.counts) == len(frame.messages)
        if len(frame.messages) > 1:
            size = sum(len(message.draft) for message in frame.messages)
            assert size <= FRAME_RECORD_BYTES_MAX


# -- answers --------------------------------------------------------------------------------------


@pytest.mark.feature("F167")
@pytest.mark.parametrize("status", list(SendStatus))
def test_four_answers_mean_stored(status):
    frame = one_frame([pending_send(target(0))])
    [outcome] = outcomes_of(
        frame, Code[status if status != "SEND_OK" else "SUCCESS"], "", response(frame)
    )
    assert outcome.status is status


@pytest.mark.feature("F176")
def test_repeats_are_placed_one_by_one_even_in_another_queue():
    frame = one_frame([pending_send(target(0), key="A"), pending_send(target(0), key="B")])
    answer = response(
        frame, runs=[], target_offsets=[-1], offsets=[50, 3], positions=[700, 800], queue_ids=[0, 2]
    )
    first, second = outcomes_of(frame, 0, "", answer)
    assert (first.offset, first.queue.queue_id, first.message_id) == (50, 0, "A")
    assert (second.offset, second.queue.queue_id, second.message_id) == (3, 2, "B")


@pytest.mark.parametrize(
    "changes",
    [
        {"target_codes": []},
        {"target_offsets": [1, 2]},
        {"runs": []},
        {"offsets": [1]},
        {"offsets": [1], "positions": [-1, -1], "queue_ids": [0, 0]},
        {"offsets": [1, 2], "positions": [-1, 5], "queue_ids": [0, 0]},
    ],
)
def test_an_answer_that_does_not_fit_leaves_the_outcome_unknown(changes):
    frame = one_frame([pending_send(target(0)), pending_send(target(0))])
    outcomes = outcomes_of(frame, 0, "", response(frame, **changes))
    assert [type(one) for one in outcomes] == [UnknownOutcome] * 2


def test_no_answer_header_leaves_the_outcome_unknown():
    frame = one_frame([pending_send(target(0))])
    [outcome] = outcomes_of(frame, 0, "", None)
    assert isinstance(outcome, UnknownOutcome)
    assert not isinstance(outcome, SendResult)
