"""What of a message is shown: text where it is text, and no half characters."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kourou.model.message import SysFlag
from kourou.model.topic import MessageQueue
from kourou_console.messages.bodies import Budget, shown
from kourou_console.messages.views import view_of, views_of
from kourou_rigs.queues_read import message_at

QUEUE = MessageQueue("%RETRY%g", "broker-a", 0)


@given(st.text(max_size=30), st.integers(0, 40))
def test_text_is_cut_between_characters(text: str, body_max: int) -> None:
    raw = text.encode()
    found, encoded, truncated = shown(raw[:body_max], truncated=len(raw) > body_max)
    assert encoded is None
    assert found is not None
    assert text.startswith(found)
    assert truncated == (found != text)
    assert len(found.encode()) > body_max - 4 or not truncated


@given(st.binary(max_size=30), st.integers(0, 40))
def test_one_of_the_two_is_there(raw: bytes, body_max: int) -> None:
    text, encoded, truncated = shown(raw[:body_max], truncated=len(raw) > body_max)
    assert (text is None) != (encoded is None)
    part = text.encode() if text is not None else base64.b64decode(encoded or "")
    assert raw.startswith(part)
    assert truncated == (part != raw)


async def test_bodies_of_many_messages_are_bounded_together() -> None:
    """They may have been compressed, so that few bytes of the log are many of an answer."""
    messages = [message_at(QUEUE, offset, body=b"123456") for offset in range(4)]
    views = await views_of(messages, Budget(10), 4)
    assert [one.body for one in views] == ["1234", "1234", "12", ""]
    assert [one.body_truncated for one in views] == [True] * 4
    assert [one.body_bytes for one in views] == [6] * 4
    assert [one.body for one in await views_of(messages[:1], Budget(10), 6)] == ["123456"]


@pytest.mark.parametrize("level", ["", "x", "9" * 40])
async def test_a_message_that_is_retried_tells_where_it_was_sent(level: str) -> None:
    properties = {"RETRY_TOPIC": "orders", "TAGS": "a", "KEYS": "1 2", "own": "x", "DELAY": level}
    view = await view_of(message_at(QUEUE, 3, properties=properties), Budget())
    assert (view.topic, view.stored_topic) == ("orders", "%RETRY%g")
    assert (view.tag, view.keys, view.properties) == ("a", ["1", "2"], {"own": "x"})
    assert view.delay_level is None


async def test_a_body_that_cannot_be_read_says_why() -> None:
    """Any producer can say that any bytes are compressed; the rest is shown all the same."""
    message = message_at(QUEUE, 3, body=b"no zlib", properties={"TAGS": "a"})
    message.stored().sys_flag = int(SysFlag.COMPRESSED)
    view = await view_of(message, Budget())
    assert (view.offset, view.tag, view.body, view.body_base64) == (3, "a", None, None)
    assert view.body_bytes is None
    assert "cannot be decompressed" in (view.body_error or "")
    assert (await view_of(message_at(QUEUE, 3, body=b"x"), Budget())).body_error is None
