"""The event store and the log, compared when they meet."""

from __future__ import annotations

import pytest

from kourou.broker.storage.control_recovery import agree, last_of_both, read_control_events
from kourou.errors import Corrupt
from kourou.events.control_events import GroupPut, Recorded, TopicPut
from kourou.model.names import CONTROL_TOPIC
from kourou.model.subscription import GroupConfig
from kourou.model.topic import TopicConfig


def meet(site, events) -> int:
    """As the projector does."""
    reaches = events.info().next_offset
    high = (site.store.queue_range(CONTROL_TOPIC, 0) or (0, 0))[1]
    return agree(events, reaches, high, last_of_both(site.store, reaches, site.store.end))


def in_the_log(site) -> list[Recorded]:
    return read_control_events(site.store, 0, site.store.end)


def test_one_that_is_behind_is_left_as_it_is(site, event_store) -> None:
    assert meet(site, event_store) == 0
    site.record(*(GroupPut(GroupConfig(f"g{n}")) for n in range(3)))
    assert meet(site, event_store) == 0
    event_store.append(in_the_log(site)[:2])
    assert meet(site, event_store) == 2
    assert event_store.events() == in_the_log(site)[:2]


def test_what_the_log_lost_is_taken_back(site, event_store, caplog) -> None:
    site.record(*(GroupPut(GroupConfig(f"g{n}")) for n in range(3)))
    logged = in_the_log(site)
    lost = [Recorded(n, n, n, "", "", "", TopicPut(TopicConfig("t"))) for n in (3, 4)]
    event_store.append([*logged, *lost])
    assert meet(site, event_store) == 3
    assert event_store.events() == logged
    assert "2 control events ahead" in caplog.text


def test_another_logs_history_is_refused_and_nothing_is_taken_back(site, event_store) -> None:
    site.record(*(GroupPut(GroupConfig(f"g{n}")) for n in range(3)))
    theirs = [Recorded(n, n, n, "", "", "", TopicPut(TopicConfig("t"))) for n in range(8)]
    event_store.append(theirs)
    with pytest.raises(Corrupt, match="differs from the event store"):
        meet(site, event_store)
    assert event_store.events() == theirs


def test_a_new_log_does_not_cost_the_history_of_the_old_one(site, event_store, caplog) -> None:
    """The store's folder was mistyped or lost: the history of decisions is still kept."""
    theirs = [Recorded(n, n, n, "", "", "", TopicPut(TopicConfig("t"))) for n in range(8)]
    event_store.append(theirs)
    assert meet(site, event_store) == 0
    assert event_store.events() == []
    assert event_store.events(stream="control~1") == theirs
    assert "kept as control~1" in caplog.text
