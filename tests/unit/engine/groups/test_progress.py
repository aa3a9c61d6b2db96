"""How far groups have come: commits, records of them, resets."""

from __future__ import annotations

import pytest

from kourou.engine.groups import progress
from kourou.engine.groups.progress import Commits, ConsumerProgress
from kourou.errors import BadRequest
from kourou.events.control_events import (
    Event,
    GroupDeleted,
    OffsetsReset,
    ProgressRecorded,
    TopicDeleted,
    decode_event,
    encode_event,
)
from kourou.model.limits import PROGRESS_EVENT_ENTRIES_MAX


def apply(state: ConsumerProgress, events: list[Event]) -> None:
    for event in events:
        assert isinstance(event, ProgressRecorded | OffsetsReset | TopicDeleted | GroupDeleted)
        progress.evolve(state, event)


def progress_and_commits(
    table: dict[str, dict[str, dict[int, int]]] | None = None,
) -> tuple[ConsumerProgress, Commits]:
    state = ConsumerProgress(table or {})
    return state, Commits(state, 5_000)


def test_only_what_moved_is_recorded():
    state, commits = progress_and_commits({"g": {"T": {0: 6, 1: 7}}})
    commits.commit("g", "T", 1, 7)
    assert commits.record() == []
    commits.commit("g", "T", 1, 8)
    assert commits.record() == [ProgressRecorded("g", {"T": {1: 8}})]
    assert state.table["g"]["T"] == {0: 6, 1: 7}


def test_commits_that_the_log_did_not_take_are_recorded_again():
    state, commits = progress_and_commits()
    commits.commit("g", "T", 0, 5)
    assert commits.due(0) == []
    lost = commits.due(5_000)
    assert lost
    assert commits.due(5_001) == []
    commits.commit("g", "T", 0, 6)
    assert commits.due(10_000) == [ProgressRecorded("g", {"T": {0: 6}})]
    # And what an older event holds does not hide what was committed after it.
    apply(state, lost)
    assert commits.offset("g", "T", 0) == 6


def test_a_reset_also_removes_what_was_not_recorded_yet():
    state, commits = progress_and_commits({"g": {"T": {0: 10, 1: 10}}})
    commits.commit("g", "T", 0, 12)
    commits.commit("g", "T", 2, 1)
    events = progress.decide_reset(commits, "g", "T", {0: 3, 1: None, 5: None})
    assert events == [OffsetsReset("g", "T", {0: 3, 1: None}, {0: 12, 1: 10})]
    apply(state, events)
    assert commits.queues("g", "T") == {0: 3, 2: 1}
    assert commits.record() == [ProgressRecorded("g", {"T": {2: 1}})]
    apply(state, progress.decide_reset(commits, "g", "T", {0: None, 2: None}))
    assert state.table == {}
    assert commits.groups() == []


@pytest.mark.parametrize(
    ("group", "topic", "offsets"),
    [("a b", "T", {0: 1}), ("g", "a b", {0: 1}), ("g", "T", {-1: 1}), ("g", "T", {0: -5})],
)
def test_a_bad_reset_is_refused(group: str, topic: str, offsets: dict[int, int | None]):
    _, commits = progress_and_commits()
    with pytest.raises(BadRequest):
        progress.decide_reset(commits, group, topic, offsets)


def test_questions_see_recorded_and_unrecorded_progress():
    _, commits = progress_and_commits({"g": {"T": {0: 1}}})
    commits.commit("h", "U", 0, 2)
    commits.commit("g", "U", 1, 3)
    assert commits.groups() == ["g", "h"]
    assert commits.groups("U") == ["g", "h"]
    assert commits.groups("T") == ["g"]
    assert list(commits.entries()) == [
        ("g", "T", {0: 1}),
        ("g", "U", {1: 3}),
        ("h", "U", {0: 2}),
    ]


def test_a_group_with_very_many_queues_is_recorded_in_several_events():
    state, commits = progress_and_commits()
    for queue in range(PROGRESS_EVENT_ENTRIES_MAX):
        commits.commit("g", "T", queue, queue)
    commits.commit("g", "U", 0, 1)
    events = commits.record()
    assert len(events) == 2
    apply(state, [decode_event(encode_event(event), "") for event in events])
    assert commits.record() == []
    assert len(state.table["g"]["T"]) == PROGRESS_EVENT_ENTRIES_MAX
    assert state.table["g"]["U"] == {0: 1}
    assert max(len(encode_event(event)) for event in events) < 4 * 1024 * 1024
