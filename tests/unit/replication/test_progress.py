"""What a leader believes of a follower, and what it sends to it."""

from itertools import product

import pytest

from kourou.replication.progress import TRANSITIONS, Event, FollowerProgress, ReplicationState

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
