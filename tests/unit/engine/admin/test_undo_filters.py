"""Decisions about filters are taken back."""

from __future__ import annotations

import pytest

from kourou.engine.admin.undo import decide_filter_undo
from kourou.engine.control import ControlState, evolve
from kourou.engine.filters import filter_table as filters
from kourou.errors import Rejected
from kourou.events.control_events import (
    Event,
    FilterDeleted,
    FilterDisabled,
    FilterEnabled,
    FilterMessagesSkipped,
    FilterPolicySet,
    FilterQuarantined,
    FilterReleased,
    FilterUploaded,
    Recorded,
)
from kourou.model.filter import FilterPolicy, FilterState
from kourou.model.limits import FILTER_VERSIONS_MAX, FILTERS_GROUP_MAX

G, F = "g", "f"


class Handler:
    """A state with two versions of one filter, the second enabled."""

    def __init__(self) -> None:
        self.state = ControlState()
        self.upload("one")
        self.upload("two")

    @property
    def filters(self) -> filters.FilterAggregate:
        return self.state.filters

    @property
    def one(self) -> FilterState:
        return self.filters.table[G, F]

    def apply(self, events: list[Event]) -> list[Event]:
        for event in events:
            offset = self.state.next_offset
            evolve(self.state, Recorded(offset, -1, offset, "t", "", "", event))
        return events

    def upload(self, source: str, name: str = F, *, enable: bool = True) -> list[Event]:
        return self.apply(
            filters.decide_upload(self.filters, G, name, source, source, enable=enable)
        )

    def undo(self, event: Event, *, forced: bool = False) -> list[Event]:
        return decide_filter_undo(self.filters, event, forced=forced)


@pytest.fixture
def handler() -> Handler:
    return Handler()


def decisions(handler: Handler) -> dict[str, list[Event]]:
    state = handler.filters
    return {
        "enabled": filters.decide_enable(state, G, F, 1),
        "rolled back": filters.decide_rollback(state, G, F),
        "disabled": filters.decide_disable(state, G, F),
        "policy": filters.decide_policy(state, G, F, "pass"),
        "quarantined": filters.decide_quarantine(state, G, F, 2, "it died"),
        "deleted": filters.decide_delete(state, G, F),
    }


def what_holds(one: FilterState) -> object:
    """Of a filter: not when a version ran, and which ran before."""
    numbers = [each.version for each in one.versions]
    return one.active, one.policy, dict(one.quarantined), numbers


@pytest.mark.parametrize("what", decisions(Handler()))
def test_what_was_decided_is_taken_back_and_that_too(handler: Handler, what: str) -> None:
    before = what_holds(handler.one)
    [event] = handler.apply(decisions(handler)[what])
    after = what_holds(handler.one) if what != "deleted" else None
    assert after != before
    [undone] = handler.apply(handler.undo(event))
    assert what_holds(handler.one) == before
    handler.apply(handler.undo(undone))
    assert (what_holds(handler.one) if what != "deleted" else None) == after or what == "deleted"
    assert ((G, F) in handler.filters.table) == (what != "deleted")


def test_a_filter_comes_back_only_where_there_is_none_and_room(handler: Handler) -> None:
    [gone] = handler.apply(filters.decide_delete(handler.filters, G, F))
    handler.upload("other")
    with pytest.raises(Rejected, match="has another filter f"):
        handler.undo(gone, forced=True)
    handler.apply(filters.decide_delete(handler.filters, G, F))
    for number in range(FILTERS_GROUP_MAX):
        handler.upload("s", f"other{number}")
    with pytest.raises(Rejected, match="the limit of stored filters is reached"):
        handler.undo(gone)
    handler.apply(filters.decide_delete(handler.filters, G, "other0"))
    handler.apply(handler.undo(gone))
    assert handler.one.next_version == 4, "the numbers given meanwhile are not given again"


def test_an_upload_is_taken_back_while_it_is_all_there_is(handler: Handler) -> None:
    [uploaded] = handler.upload("s", "new", enable=False)
    [gone] = handler.undo(uploaded)
    assert isinstance(gone, FilterDeleted)
    handler.apply(filters.decide_enable(handler.filters, G, "new"))
    with pytest.raises(Rejected, match="has changed since"):
        handler.undo(uploaded)
    assert types(handler.undo(uploaded, forced=True)) == ["FilterDeleted"]
    handler.upload("t", "new")
    with pytest.raises(Rejected, match="has other versions"):
        handler.undo(uploaded, forced=True)


def types(events: list[Event]) -> list[str]:
    return [event.type for event in events]


def test_what_changed_since_is_undone_by_force_only(handler: Handler) -> None:
    [enabled] = handler.apply(filters.decide_enable(handler.filters, G, F, 1))
    handler.upload("three")
    with pytest.raises(Rejected, match="has changed since"):
        handler.undo(enabled)
    assert handler.undo(enabled, forced=True) == [FilterEnabled(G, F, 2, 3)]
    [set_] = handler.apply(filters.decide_policy(handler.filters, G, F, "pass"))
    handler.apply(filters.decide_policy(handler.filters, G, F, "skip"))
    with pytest.raises(Rejected, match="has changed since"):
        handler.undo(set_)
    assert handler.undo(set_, forced=True) == [
        FilterPolicySet(G, F, FilterPolicy.HOLD, FilterPolicy.SKIP)
    ]


def test_the_first_enabling_is_undone_by_disabling(handler: Handler) -> None:
    _, enabled = handler.upload("s", "new")
    assert handler.apply(handler.undo(enabled)) == [FilterDisabled(G, "new", 1)]
    assert handler.undo(enabled, forced=True) == []


def test_a_version_that_is_gone_or_in_quarantine_does_not_run_again(handler: Handler) -> None:
    [enabled] = handler.apply(filters.decide_enable(handler.filters, G, F, 1))
    handler.apply(filters.decide_quarantine(handler.filters, G, F, 2, "it died"))
    with pytest.raises(Rejected, match="is quarantined: it died"):
        handler.undo(enabled)
    assert handler.undo(enabled, forced=True) == [FilterEnabled(G, F, 2, 1)]
    [disabled] = handler.apply(filters.decide_disable(handler.filters, G, F))
    for number in range(FILTER_VERSIONS_MAX + 1):
        handler.upload(f"more {number}")
    with pytest.raises(Rejected, match=r"version 1 .* is no longer stored"):
        handler.undo(disabled, forced=True)
    quarantined = FilterQuarantined(G, F, 2, "it died")
    assert handler.undo(quarantined, forced=True) == []
    assert handler.undo(FilterReleased(G, F, 2, "it died"), forced=True) == []
    assert handler.undo(FilterUploaded(G, F, 2, "two", "two")) == []


def test_what_was_passed_over_and_what_is_gone_cannot_be_undone(handler: Handler) -> None:
    skipped = FilterMessagesSkipped(G, F, 2, "T", 0, (7,), "it raised")
    with pytest.raises(Rejected, match="undo cannot deliver skipped messages"):
        handler.undo(skipped, forced=True)
    with pytest.raises(Rejected, match="has no filter other"):
        handler.undo(FilterEnabled(G, "other", 1), forced=True)
