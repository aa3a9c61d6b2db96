"""Reading control events back from the log."""

from __future__ import annotations

from kourou.broker.storage.control_recovery import read_control_events
from kourou.engine.sends.recorder import BATCH_EVENTS
from kourou.events.control_events import EventLost, GroupPut
from kourou.model.names import CONTROL_TOPIC
from kourou.model.subscription import GroupConfig


def names(batch) -> list[str]:
    return [each.event.aggregate for each in batch]


def test_events_come_with_their_places(site) -> None:
    site.record(*(GroupPut(GroupConfig(f"g{n}")) for n in range(3)))
    batch = read_control_events(site.store, 1, site.store.end)
    assert names(batch) == ["group/g1", "group/g2"]
    assert [each.offset for each in batch] == [1, 2]
    positions = [site.store.offset_position(CONTROL_TOPIC, 0, offset) for offset in (1, 2)]
    assert [each.position for each in batch] == positions


def test_only_what_lies_below_is_read(site) -> None:
    site.record(GroupPut(GroupConfig("a")))
    end = site.store.end
    site.record(GroupPut(GroupConfig("b")))
    assert names(read_control_events(site.store, 0, end)) == ["group/a"]
    assert read_control_events(site.store, 1, end) == []
    assert read_control_events(site.store, 2, site.store.end) == []


def test_a_batch_is_bounded(site) -> None:
    site.record(*(GroupPut(GroupConfig(f"g{n}")) for n in range(BATCH_EVENTS + 3)))
    batch = read_control_events(site.store, 0, site.store.end)
    assert len(batch) == BATCH_EVENTS
    assert len(read_control_events(site.store, BATCH_EVENTS, site.store.end)) == 3


def test_a_damaged_record_stands_as_lost(site) -> None:
    site.record(*(GroupPut(GroupConfig(f"g{n}")) for n in range(4)))
    at = site.store.offset_position(CONTROL_TOPIC, 0, 1)
    segment = next(path for path in site.disk.files() if "commitlog" in path.parts)
    site.disk.overwrite(segment, b"\0\xff\0\xff", at + 120)
    batch = read_control_events(site.store, 0, site.store.end)
    assert [each.offset for each in batch] == [0, 1, 2, 3]
    assert isinstance(batch[1].event, EventLost)
    assert names(batch)[2:] == ["group/g2", "group/g3"]
    only = read_control_events(site.store, 1, site.store.end)
    assert isinstance(only[0].event, EventLost)
