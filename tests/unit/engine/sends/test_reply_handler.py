"""Replies are stored unless that is switched off; the rest is in the transcripts."""

import pytest

from kourou.errors import Code
from kourou.protocol.messages.sends import SendReplyMessage


@pytest.mark.parametrize("stored", [True, False])
def test_replies_need_not_be_stored(engine, stored) -> None:
    topic = "DefaultCluster_REPLY_TOPIC"
    engine.core.parts.apply("storeReplyMessageEnable", stored)
    request = SendReplyMessage(producer_group="p", topic=topic, queue_id=0, born_timestamp=5)
    assert engine.ask(request, b"pong").code == Code.SYSTEM_ERROR, "it names no client"
    assert [one.body for one in engine.stored(topic)] == [b"pong"] * stored
