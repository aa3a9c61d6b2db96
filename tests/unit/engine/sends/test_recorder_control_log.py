"""Reading control events back, and who is told of those that are lost."""

from __future__ import annotations

import pytest

from kourou.engine.sends.recorder import read_control_events
from kourou.events.control_events import Cause, EventLost, GroupPut
from kourou.model.names import CONTROL_TOPIC
from kourou.model.subscription import GroupConfig
from kourou.protocol.record.message_record import encode_draft
from kourou.runtime.core import LogWarning


@pytest.mark.parametrize(
    ("tag", "about_users"),
    [("TopicPut", False), ("UserPut", True), ("AccessModeSet", True), ("OfNewerBuild", None)],
)
def test_a_lost_event_tells_by_its_tag_whether_it_was_about_users(
    engine, tag: str, about_users: bool | None
) -> None:
    parts = engine.core.parts
    first = engine.control.next_offset
    draft = encode_draft(
        topic=CONTROL_TOPIC.encode(),
        queue_id=0,
        body=b"no event",
        properties=b"TAGS\x01" + tag.encode(),
        born_timestamp=1,
        born_host=bytes(8),
    )
    parts.appends.write_one(draft, (CONTROL_TOPIC, 0), engine.wall_ms)
    engine.perform(parts.appends.take_done())
    [lost] = read_control_events(engine.store, first, engine.store.end, lambda _: None)
    assert isinstance(lost.event, EventLost)
    assert lost.event.about_users is about_users


def test_an_event_that_is_no_event_is_reported_and_stands_as_lost(engine) -> None:
    parts = engine.core.parts
    first = engine.control.next_offset
    draft = encode_draft(
        topic=CONTROL_TOPIC.encode(),
        queue_id=0,
        body=b"no event",
        properties=b"",
        born_timestamp=1,
        born_host=bytes(8),
    )
    parts.appends.write_one(draft, (CONTROL_TOPIC, 0), engine.wall_ms)
    parts.confirmations.append(parts.appends.end)
    parts.recorder.record([GroupPut(GroupConfig("b"))], Cause("me"), engine.wall_ms)
    engine.perform(parts.appends.take_done())
    lost: list[LogWarning] = []
    batch = read_control_events(engine.store, first, engine.store.end, lost.append)
    assert [each.offset for each in batch] == [first, first + 1]
    assert isinstance(batch[0].event, EventLost)
    assert batch[1].event == GroupPut(GroupConfig("b"))
    assert batch[0].event.about_users is None, "it has no tag"
    assert len(lost) == 2
    assert lost[1].sentence == f"control event {first} is unreadable and is skipped"
