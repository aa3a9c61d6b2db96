"""The ID of a transaction has what is needed to decide it; any other text is refused."""

from __future__ import annotations

import base64

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kourou.errors import BadRequest
from kourou.model.message import SendResult, SendStatus
from kourou.model.topic import MessageQueue
from kourou_console.messages.transactions import half_of, id_of

HALF = SendResult(
    SendStatus.SEND_OK,
    "AC11",
    MessageQueue("orders", "broker-a", 3),
    7,
    "7F00000100002A9F" + "0" * 16,
)


def test_an_id_is_read_where_it_was_made() -> None:
    assert half_of(id_of(HALF)) == HALF


@pytest.mark.fuzz
@given(
    st.text(max_size=60)
    | st.binary(max_size=60).map(base64.urlsafe_b64encode).map(bytes.decode)
    | st.lists(st.integers(-(2**63), 2**64 - 1) | st.text(max_size=9) | st.none(), max_size=8)
    .map(msgspec.msgpack.encode)
    .map(base64.urlsafe_b64encode)
    .map(bytes.decode)
)
def test_any_text_is_a_half_message_or_a_bad_request(text: str) -> None:
    try:
        half = half_of(text)
    except BadRequest:
        return
    assert half.offset >= 0
    assert half.queue.queue_id >= 0
