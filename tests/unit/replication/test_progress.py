"""What a leader believes of a follower, and what it sends to it."""

from __future__ import annotations

from itertools import product

import pytest

from kourou.replication.progress import (
    TRANSITIONS,
    Event,
    FollowerProgress,
    InSync,
    InSyncChange,
    ReplicationState,
)

WINDOW = 100


def replicating(at: int = 50) -> FollowerProgress:
    progress = FollowerProgress("n1", at, 0)
    progress.ships(at, 1)
    progress.accepted(5, 1, at, at)
    assert progress.state is ReplicationState.REPLICATE
    return progress


def test_the_table_has_a_row_for_whatever_may_happen():
    wanted = set(product(ReplicationState, (Event.ACCEPTED, Event.REFUSED, Event.SILENT)))
    wanted |= {
        (ReplicationState.PROBE, Event.FAR),
        (ReplicationState.REPLICATE, Event.FAR),
        (ReplicationState.CATCH_UP, Event.NEAR),
    }
    assert set(TRANSITIONS) == wanted


def test_no_claim_counts_beyond_what_was_sent():
    progress = replicating()
    progress.ships(80, 2)
    progress.accepted(9, 2, 1_000, 900)
    assert (progress.written, progress.flushed, progress.next) == (80, 80, 80)
    progress.fetches(200)
    progress.accepted(9, 2, 1_000, 150)
    assert (progress.written, progress.flushed) == (200, 150)


def test_nothing_is_flushed_that_is_not_written():
    progress = replicating()
    progress.ships(80, 2)
    progress.accepted(9, 2, 60, 80)
    assert (progress.written, progress.flushed) == (60, 60)


def test_a_window_of_refusals_leads_to_one_chunk():
    """Were each answered by a window of chunks, they would multiply."""
    progress = replicating()
    for end in (60, 70, 80):
        progress.ships(end, 2)
    assert progress.refused(9, 2, 50, certain=True)
    assert (progress.state, progress.next) == (ReplicationState.PROBE, 50)
    progress.ships(60, 2)
    assert not progress.refused(9, 2, 50, certain=True)
    assert not progress.refused(9, 2, 50, certain=True)
    assert progress.room(WINDOW) == 0
    assert progress.refused(12, 3, 50, certain=True)  # a later heartbeat: the probe was lost
    assert progress.room(WINDOW) == WINDOW


def test_a_guess_is_asked_without_bytes():
    progress = replicating()
    assert progress.refused(9, 2, 10, certain=False)
    assert (progress.next, progress.room(WINDOW)) == (10, 0)


def test_a_late_refusal_takes_nothing_back():
    progress = replicating()
    progress.ships(80, 4)
    progress.accepted(9, 4, 80, 80)
    assert not progress.refused(10, 3, 20, certain=True)
    assert not progress.refused(10, 4, 20, certain=True)
    assert (progress.written, progress.flushed) == (80, 80)
    assert progress.refused(11, 5, 20, certain=True)
    assert (progress.written, progress.flushed, progress.next) == (20, 20, 20)


def test_who_is_silent_gets_no_bytes_until_it_answers():
    progress = replicating()
    progress.ships(120, 2)
    progress.silent()
    assert (progress.state, progress.next, progress.room(WINDOW)) == (ReplicationState.PROBE, 50, 0)


def test_far_behind_it_fetches_and_near_it_is_served_again():
    progress = replicating()
    progress.judge_distance(end=400, first_position=0, catch_up_bytes=200)
    assert (progress.state, progress.room(WINDOW)) == (ReplicationState.CATCH_UP, 0)
    progress.fetches(400)
    progress.accepted(9, 2, 250, 250)
    progress.judge_distance(end=400, first_position=0, catch_up_bytes=200)
    assert progress.state is ReplicationState.CATCH_UP
    progress.accepted(10, 2, 310, 310)
    progress.judge_distance(end=400, first_position=0, catch_up_bytes=200)
    assert (progress.state, progress.next) == (ReplicationState.PROBE, 310)


def test_below_the_leaders_first_byte_it_is_reported_where_that_is():
    progress = FollowerProgress("n1", 90, 0)
    progress.refused(5, 1, 10, certain=True)
    progress.judge_distance(end=100, first_position=60, catch_up_bytes=200)
    assert (progress.state, progress.next) == (ReplicationState.CATCH_UP, 60)


@pytest.mark.parametrize("state", ReplicationState)
def test_it_is_heard_whatever_it_says(state: ReplicationState):
    progress = replicating()
    progress.state = state
    progress.refused(77, 9, 10, certain=True)
    assert progress.heard_ms == 77


def in_sync() -> InSync:
    found = InSync(fallbehind_max=1_000, timeout_ms=3_000)
    found.attached(1)
    return found


@pytest.mark.feature("F129", "F141")
def test_a_follower_joins_when_it_has_all_that_there_is() -> None:
    found = in_sync()
    assert found.update(0, 500) is None
    found.acknowledged(10, 1, 400, 500)
    assert found.update(10, 500) is None
    found.acknowledged(20, 1, 500, 500)
    assert found.update(20, 500) == InSyncChange((1,), (), "1 has caught up")
    assert (found.members, found.copied) == ((1,), 500)
    assert found.update(20, 500) is None


def test_under_load_it_is_enough_to_have_what_there_was_a_moment_ago() -> None:
    found = in_sync()
    found.acknowledged(0, 1, 100, 200)
    found.acknowledged(10, 1, 200, 300)
    assert found.update(10, 300) == InSyncChange((1,), (), "1 has caught up")
    for turn in range(2, 100):
        found.acknowledged(turn * 1_000, 1, turn * 100, turn * 100 + 100)
        assert found.update(turn * 1_000, turn * 100 + 100) is None, "it lags, and it keeps up"


def test_a_follower_that_is_slower_than_the_log_grows_never_joins() -> None:
    found = InSync(fallbehind_max=1 << 40, timeout_ms=3_000)
    found.attached(1)
    for turn in range(100):
        found.acknowledged(turn * 1_000, 1, turn * 90, turn * 100 + 5_000)
        assert found.update(turn * 1_000, turn * 100 + 5_000) is None


def test_who_is_silent_leaves_and_comes_back_when_it_has_caught_up() -> None:
    found = in_sync()
    found.acknowledged(0, 1, 500, 500)
    found.update(0, 500)
    assert found.update(3_000, 500) is None
    assert found.update(3_001, 500) == InSyncChange((), (1,), "1 did not keep up for 3001 ms")
    found.acknowledged(3_100, 1, 500, 900)
    assert found.update(3_100, 900) is None
    found.acknowledged(3_200, 1, 900, 900)
    assert found.update(3_200, 900) == InSyncChange((1,), (), "1 has caught up")


def test_who_falls_behind_too_far_leaves_though_it_answers() -> None:
    found = in_sync()
    found.acknowledged(0, 1, 500, 500)
    found.update(0, 500)
    assert found.update(1, 1_500) is None
    assert found.update(1, 1_501) == InSyncChange((), (1,), "1 lacks 1001 bytes")


def test_who_is_gone_leaves_at_once_and_what_it_had_counts_no_more() -> None:
    found = in_sync()
    found.attached(2)
    found.acknowledged(0, 1, 400, 400)
    found.acknowledged(0, 2, 500, 400)
    assert found.update(0, 400) == InSyncChange((1, 2), (), "1 has caught up; 2 has caught up")
    assert found.copied == 400
    found.detached(1)
    assert found.update(1, 400) == InSyncChange((2,), (1, 2), "1 is not attached any more")
    assert found.copied == 500
    found.attached(1)
    assert found.update(2, 400) is None, "it says first what it has"
    found.detached(2)
    assert found.update(3, 400) == InSyncChange((), (2,), "2 is not attached any more")
    assert found.copied == 0


def test_a_member_that_attaches_anew_must_catch_up_anew() -> None:
    found = in_sync()
    found.acknowledged(0, 1, 400, 400)
    found.update(0, 400)
    found.attached(1)
    assert found.update(1, 400) == InSyncChange((), (1,), "1 has not caught up")


def test_lag_in_time_counts_from_when_it_last_had_all_that_there_was() -> None:
    found = in_sync()
    assert found.lag_ms(0, 1, 400) is None, "it has not told yet"
    assert found.lag_ms(0, 9, 400) is None, "nobody"
    found.acknowledged(1_000, 1, 400, 400)
    assert found.lag_ms(60_000, 1, 400) == 0, "both rest"
    assert found.lag_ms(1_500, 1, 500) == 500
    found.acknowledged(2_000, 1, 450, 600)
    assert found.lag_ms(2_500, 1, 600) == 1_500
    found.acknowledged(3_000, 1, 600, 700)
    assert found.lag_ms(3_000, 1, 700) == 1_000, "what there was at 2,000 is here"
