"""What must be known to begin a log above position 0, and its bytes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from kourou.engine.admin import log_bootstrap as log_beginning
from kourou.engine.admin.log_bootstrap import (
    LogBeginning,
    decode_beginning,
    encode_beginning,
    next_control_offset,
    queue_ends_of,
)
from kourou.engine.control import ControlState, encode_state, evolve
from kourou.errors import DecodeError, Rejected
from kourou.events.control_events import EpochOpened, Recorded, TopicPut
from kourou.model.names import CONTROL_TOPIC
from kourou.model.topic import TopicConfig
from kourou.store.store import Store
from kourou.testing.disk import SimDisk
from kourou_rigs.store import Draft, StoreWriter, delete_before, small_settings


def beginning() -> LogBeginning:
    control = ControlState()
    evolve(control, Recorded(0, 0, 10, "t", "", "", EpochOpened(64, 0, "a/0", "SYNC_MASTER")))
    evolve(control, Recorded(1, 90, 11, "t", "", "", TopicPut(TopicConfig("orders", 4, 4))))
    ends = {CONTROL_TOPIC: {0: 2}, "orders": {1: 7, 0: 3}}
    return LogBeginning("c", "broker-a", 100, 400, ends, control)


def test_it_comes_back_whole_and_equal_ones_are_equal_bytes() -> None:
    body = encode_beginning(beginning())
    found = decode_beginning(body)
    assert (found.cluster, found.broker_name, found.segment_size) == ("c", "broker-a", 100)
    assert (found.position, found.epoch, found.epochs) == (400, 64, [(64, 0)])
    assert (found.next_offset, next_control_offset(found.queue_ends)) == (2, 2)
    assert found.queue_ends == beginning().queue_ends
    assert encode_state(found.control) == encode_state(beginning().control)
    turned = {topic: dict(reversed(queues.items())) for topic, queues in
              reversed(beginning().queue_ends.items())}  # fmt: skip
    assert encode_beginning(replace(beginning(), queue_ends=turned)) == body


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("format", 2, "format 2"),
        ("position", 450, "450 is not the start of a segment of 100 bytes"),
        ("position", -100, "cannot be read"),
        ("queue_ends", {}, "the state after 2 control events, but 0 precede"),
        ("queue_ends", {"orders": {"x": 1}}, "cannot be read"),
        ("control", {}, "the snapshot cannot be read"),
        ("position", 0, "an epoch starts after 0"),
    ],
)
def test_what_cannot_be_is_refused(field: str, value: object, said: str) -> None:
    stored = json.loads(encode_beginning(beginning()))
    with pytest.raises(DecodeError, match=said):
        decode_beginning(json.dumps({**stored, field: value}).encode())
    with pytest.raises(DecodeError):
        decode_beginning(b"\xff" * 9)


def test_one_that_fits_into_no_file_is_not_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_beginning, "LOG_BEGINNING_BYTES_MAX", 100)
    with pytest.raises(Rejected, match="at most 100 can be sent"):
        encode_beginning(beginning())


def test_queues_that_lost_messages_are_reported_with_where_they_go_on() -> None:
    store = Store.open(small_settings(Path("/store"), segment_size_bytes=2048), SimDisk())
    StoreWriter(store).write([Draft("Old", 0, bytes(100))])
    StoreWriter(store).write([Draft("TopicA", n % 2, bytes(300)) for n in range(20)])
    assert queue_ends_of(store) == {}
    delete_before(store, 2 * 2048)
    low = {queue_id: store.queue_range("TopicA", queue_id)[0] for queue_id in (0, 1)}  # type: ignore[index]  # both were written
    assert queue_ends_of(store) == {"Old": {0: 1}, "TopicA": low}
    store.close()
