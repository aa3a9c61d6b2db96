"""A stored message for tests of what follows from facts."""

from __future__ import annotations

import pytest

from kourou.client.explain.facts import CopyKind, StoredCopy
from kourou.model.message import Property
from kourou.model.topic import MessageQueue


@pytest.fixture
def message() -> StoredCopy:
    """orders/broker-a/1@7, with the tag paid."""
    return StoredCopy(
        kind=CopyKind.SENT,
        queue=MessageQueue("orders", "broker-a", 1),
        offset=7,
        position=1_000,
        size_bytes=100,
        stored_ms=1_000_000,
        born_ms=999_000,
        attempts=0,
        message_id="ID",
        offset_message_id="OFFSET",
        properties={Property.TAGS.value: "paid", "price": "7"},
    )
