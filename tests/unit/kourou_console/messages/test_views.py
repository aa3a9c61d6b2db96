"""What of a message is shown: where it was sent, and why a body cannot be read."""

from __future__ import annotations

import pytest

from kourou.model.message import SysFlag
from kourou.model.topic import MessageQueue
from kourou_console.messages.bodies import Budget
from kourou_console.messages.views import view_of
from kourou_rigs.queues_read import message_at

QUEUE = MessageQueue("%RETRY%g", "broker-a", 0)


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
