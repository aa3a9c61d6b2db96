"""Heartbeats and queue locks; what clients do step by step is in tests/golden/transcripts."""

import pytest

from kourou.errors import Code
from kourou.protocol.messages.groups import LockBatchMq, UnlockBatchMq


@pytest.mark.parametrize(
    "said",
    [
        b"{",
        b'{"clientId":"","consumerGroup":"g","mqSet":[]}',
        b'{"clientId":"a","consumerGroup":"g g","mqSet":[]}',
        b'{"clientId":"a","consumerGroup":"g","mqSet":[{"brokerName":"broker-a","queueId":0,'
        b'"topic":"no topic"}]}',
    ],
)
def test_what_is_no_lock_is_refused(engine, said) -> None:
    before = len(engine.events())
    assert engine.ask(LockBatchMq(), said).code != Code.SUCCESS
    assert engine.ask(UnlockBatchMq(), said).code != Code.SUCCESS
    assert len(engine.events()) == before
