"""How long a leader may be sure of itself."""

from kourou.replication.raft.leader import LeaderLease


def lease(majority: int = 2) -> LeaderLease:
    return LeaderLease(0, majority=majority, lease_ms=100, round_ms=10)


def test_it_counts_from_when_a_round_began_and_not_from_its_answer():
    one = lease()
    assert not one.valid(0, [0, 0])
    assert one.valid(99, [1, 0])
    assert not one.valid(100, [1, 0])
    one.turn(60)
    assert one.round == 2
    assert one.valid(159, [2, 0])
    assert not one.valid(160, [2, 0])


def test_rounds_do_not_begin_faster_than_they_are_distinguished():
    one = lease()
    one.turn(9)
    assert one.round == 1
    one.turn(10)
    assert one.round == 2


def test_as_many_must_have_answered_as_make_a_majority():
    one = lease(majority=3)
    one.turn(50)
    assert not one.valid(100, [2, 1, 0, 0])
    assert one.valid(99, [2, 1, 0, 0])
    assert one.valid(149, [2, 2, 0, 0])


def test_alone_it_is_always_sure():
    assert lease(majority=1).valid(1_000_000, [])


def test_what_is_too_old_or_was_never_asked_counts_for_nothing():
    one = lease()
    for now in range(20, 2_000, 20):
        one.turn(now)
    assert not one.valid(2_000, [1])
    assert not one.valid(2_000, [one.round + 1])
    assert one.valid(2_000, [one.round])


def test_while_another_is_to_stand_nothing_is_sure_and_no_round_begins():
    one = lease()
    one.suspend()
    one.turn(50)
    assert one.round == 1
    assert not one.valid(60, [1, 1])


def test_if_it_did_not_stand_only_later_rounds_count():
    one = lease()
    one.suspend()
    one.resume(50)
    assert one.round == 2
    assert not one.valid(60, [1, 1])
    assert one.valid(149, [2, 1])
