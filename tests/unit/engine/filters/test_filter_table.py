"""Filters: decided, then evolved; rebuilt from their events they are the same."""

from __future__ import annotations

import hashlib
import random

import pytest

from kourou.engine.admin import undo as filter_undo
from kourou.engine.control import (
    ControlState,
    decode_state,
    encode_state,
    evolve,
)
from kourou.engine.filters import filter_table as filters
from kourou.engine.filters.filter_table import FilterAggregate, filters_of, snapshot
from kourou.errors import Rejected
from kourou.events.control_events import (
    Cause,
    Event,
    FilterDeleted,
    FilterEnabled,
    FilterMessagesSkipped,
    FilterQuarantined,
    FilterUploaded,
    Recorded,
    decode_record_body,
    encode_record_body,
)
from kourou.model.filter import FilterState
from kourou.model.limits import (
    FILTER_NAMES_REMEMBERED_MAX,
    FILTER_SOURCE_BYTES_MAX,
    FILTER_SOURCES_BYTES_MAX,
    FILTER_VERSIONS_MAX,
    FILTERS_GROUP_MAX,
    FILTERS_MAX,
)

G, F = "g", "f"


class Table:
    """A control state and its events."""

    def __init__(self) -> None:
        self.state = ControlState()
        self.log: list[Recorded] = []

    @property
    def filters(self) -> FilterAggregate:
        return self.state.filters

    @property
    def one(self) -> FilterState:
        found = self.filters.get(G, F)
        assert found is not None
        return found

    def apply(self, events: list[Event]) -> list[Event]:
        for event in events:
            recorded = Recorded(len(self.log), -1, 1_000 + len(self.log), "t", "", "", event)
            self.log.append(recorded)
            evolve(self.state, recorded)
        return events

    def upload(self, source: str, name: str = F, *, enable: bool = True) -> list[Event]:
        sha256 = hashlib.sha256(source.encode()).hexdigest()
        return self.apply(
            filters.decide_upload(self.filters, G, name, source, sha256, author="a", enable=enable)
        )


@pytest.fixture
def table() -> Table:
    return Table()


# -- uploading -------------------------------------------------------------------------------------


def test_too_many_versions_lose_the_oldest_that_neither_run_nor_ran_before(table: Table) -> None:
    for number in range(1, 3):
        table.upload(f"source {number}")
    table.apply(filters.decide_rollback(table.filters, G, F))
    assert (table.one.active, table.one.before_active) == (1, 2)
    table.apply(filters.decide_quarantine(table.filters, G, F, 2, "it lied"))
    table.upload("three", enable=False)
    table.apply(filters.decide_quarantine(table.filters, G, F, 3, "it died"))
    for number in range(4, FILTER_VERSIONS_MAX + 2):
        table.upload(f"source {number}", enable=False)
    numbers = [each.version for each in table.one.versions]
    assert numbers == [1, 2, *range(4, FILTER_VERSIONS_MAX + 2)]
    assert table.one.quarantined == {2: "it lied"}, "of versions that are kept"
    assert table.filters.source_bytes == sum(each.size_bytes for each in table.one.versions)


def test_a_broker_a_group_and_its_memory_have_room_for_so_many(table: Table) -> None:
    for number in range(FILTERS_GROUP_MAX):
        table.upload("s", f"f{number}")
    with pytest.raises(Rejected, match="group g has 32 filters"):
        table.upload("s", "another")
    assert table.upload("two", "f0"), "another version is no other filter"
    for number in range(FILTERS_MAX - FILTERS_GROUP_MAX):
        table.apply(filters.decide_upload(table.filters, f"h{number}", F, "s", "0", enable=True))
    with pytest.raises(Rejected, match="this broker stores 256 filters"):
        filters.decide_upload(table.filters, "i", F, "s", "0", enable=True)


def test_the_sources_of_all_filters_are_bounded(table: Table) -> None:
    source = "x" * (FILTER_SOURCE_BYTES_MAX - 4)
    for number in range(FILTER_SOURCES_BYTES_MAX // FILTER_SOURCE_BYTES_MAX):
        table.upload(f"{number:04}{source}", f"f{number // FILTER_VERSIONS_MAX}")
    with pytest.raises(Rejected, match="have 16777216 bytes"):
        table.upload("x", "more")
    table.apply(filters.decide_delete(table.filters, G, "f0"))
    assert table.upload("x", "more")


# -- deciding --------------------------------------------------------------------------------------


def skip(*offsets: int, version: int = 1) -> FilterMessagesSkipped:
    return FilterMessagesSkipped(G, F, version, "T", 0, offsets, "it raised", "h:1")


def test_names_of_deleted_filters_are_remembered_for_long_and_not_for_ever(table: Table) -> None:
    for number in range(FILTER_NAMES_REMEMBERED_MAX + 1):
        table.apply(filters.decide_upload(table.filters, G, f"f{number}", "s", "0", enable=False))
        table.apply(filters.decide_delete(table.filters, G, f"f{number}"))
    assert len(table.filters.retired) == FILTER_NAMES_REMEMBERED_MAX
    assert (G, "f0") not in table.filters.retired


# -- as bytes, and rebuilt -------------------------------------------------------------------------


def test_events_that_the_state_has_already_change_nothing(table: Table) -> None:
    table.upload("one")
    table.apply(filters.decide_policy(table.filters, G, F, "skip"))
    mirrored = filters_of(snapshot(table.filters))
    table.apply(filters.decide_skip(table.filters, skip(7)))
    for recorded in table.log:
        filters.evolve(mirrored, recorded.event, recorded.offset, recorded.at_ms)
    assert mirrored == table.filters
    assert mirrored.source_bytes == table.filters.source_bytes == 3


def test_events_of_filters_that_are_not_there_change_nothing_but_the_version(table: Table) -> None:
    """A stream whose beginning is lost."""
    table.apply([FilterEnabled(G, F, 1), FilterQuarantined(G, F, 1, "x"), skip(3)])
    table.apply([FilterDeleted(FilterState(G, F))])
    assert (len(table.filters), table.filters.version) == (0, 3)


def decide_something(table: Table, chance: random.Random) -> list[Event]:
    """Any command, wise or not; what is refused is no event."""
    group, name = chance.choice("gh"), chance.choice("abc")
    version = chance.choice([None, *range(1, 8)])
    state = table.filters
    try:
        match chance.randrange(10):
            case 0 | 1 | 2:
                source = str(chance.randrange(40))
                enable = chance.random() < 0.7
                return filters.decide_upload(state, group, name, source, source, enable=enable)
            case 3:
                return filters.decide_enable(state, group, name, version)
            case 4:
                return filters.decide_rollback(state, group, name)
            case 5:
                return filters.decide_disable(state, group, name)
            case 6:
                return filters.decide_policy(state, group, name, chance.choice(["skip", "pass"]))
            case 7:
                return filters.decide_quarantine(state, group, name, version, "x")
            case 8:
                if chance.random() < 0.3:
                    return filters.decide_delete(state, group, name)
                number = version or 1
                passed = FilterMessagesSkipped(group, name, number, "T", 0, (1, 2), "x")
                return filters.decide_skip(state, passed)
            case _:
                if not table.log:
                    return []
                event = chance.choice(table.log).event
                forced = chance.random() < 0.5
                return filter_undo.decide_filter_undo(state, event, forced=forced)
    except Rejected:
        return []


@pytest.mark.feature("F240")
@pytest.mark.parametrize("seed", range(12))
def test_rebuilt_from_its_events_the_state_is_the_live_one(seed: int) -> None:
    table, chance = Table(), random.Random(seed)
    snapshots: list[bytes] = []
    given: set[tuple[str, str, int]] = set()
    for _ in range(400):
        for event in table.apply(decide_something(table, chance)):
            if isinstance(event, FilterUploaded):
                version = (event.group, event.name, event.version)
                assert version not in given, "a version number came again"
                given.add(version)
        for one in table.filters:
            assert one.active is None or one.version(one.active) is not None
            assert all(one.version(number) is not None for number in one.quarantined)
            assert len(one.versions) <= FILTER_VERSIONS_MAX
            assert all(each.version < one.next_version for each in one.versions)
        kept = sum(each.size_bytes for one in table.filters for each in one.versions)
        assert table.filters.source_bytes == kept
        if chance.random() < 0.05:
            snapshots.append(encode_state(table.state))
    live = encode_state(table.state)
    assert len(table.log) > 200
    for start in [encode_state(ControlState()), *snapshots]:
        again = decode_state(start)
        for recorded in table.log[again.next_offset :]:
            cause = Cause("t")
            body = encode_record_body(recorded.event, at_ms=recorded.at_ms, cause=cause)
            evolve(again, decode_record_body(body, offset=recorded.offset, position=-1))
        assert encode_state(again) == live
        assert again.filters == table.filters
        assert again.filters.source_bytes == table.filters.source_bytes
