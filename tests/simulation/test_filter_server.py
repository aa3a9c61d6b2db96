"""A filter server between a broker and consumers, under a seed: no answer has a message that the
filter denied, none leaves one out that it wants, and every pull is answered in its time.

FilterWorld checks every answer as it comes; these tests say what happens around it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from kourou.errors import Code
from kourou.model.filter import FilterPolicy
from kourou_rigs.filter_records import Does
from kourou_rigs.filter_world import FilterWorld

Seeds = Callable[[int], Iterator[int]]
FOR_LONG_S = 600.0
FOR_A_WHILE_S = 30.0
FULL = 200


def finish(world: FilterWorld) -> None:
    world.run(FOR_LONG_S, lambda: world.done)


def mended(world: FilterWorld) -> None:
    """Operators enable further versions, every second one of which is mended, until all is read."""
    world.run(FOR_A_WHILE_S, lambda: world.done)
    for _ in range(12):
        if world.done:
            return
        world.add_version()
        world.run(FOR_A_WHILE_S, lambda: world.done)
    assert world.done, (world.offsets, world.tally)


@pytest.mark.fault
@pytest.mark.feature("F241")
def test_consumers_get_what_the_filter_wants_and_nothing_else(simulation_seeds: Seeds) -> None:
    for seed in simulation_seeds(FULL):
        world = FilterWorld(seed)
        finish(world)
        assert world.done, seed
        assert set(world.tally.answers) <= {
            Code.SUCCESS,
            Code.PULL_RETRY_IMMEDIATELY,
            Code.PULL_NOT_FOUND,
        }
        assert world.tally.largest_batch > 1


@pytest.mark.fault
@pytest.mark.feature("F241")
def test_nothing_is_lost_or_let_through_whatever_ends(simulation_seeds: Seeds) -> None:
    """Workers, the zygote, the broker and connections end at any time, versions come and go."""
    answers: Counter[int] = Counter()
    for seed in simulation_seeds(FULL):
        world = FilterWorld(seed, chaos=True)
        finish(world)
        assert world.done, (seed, world.tally)
        answers += world.tally.answers
    assert Code.SUCCESS in answers


@pytest.mark.fault
@pytest.mark.feature("F243")
@pytest.mark.parametrize("policy", FilterPolicy)
@pytest.mark.parametrize("harmful", [0.003, 0.03, 0.5])
def test_a_broken_filter_drops_nothing(
    simulation_seeds: Seeds, policy: FilterPolicy, harmful: float
) -> None:
    for seed in simulation_seeds(FULL // 2):
        world = FilterWorld(seed, harmful=harmful, policy=policy, chaos=bool(seed % 2))
        mended(world)
        if policy is not FilterPolicy.SKIP:
            assert not world.tally.skipped
        if policy is not FilterPolicy.PASS:
            assert not world.tally.unfiltered


@pytest.mark.fault
@pytest.mark.feature("F243")
def test_what_is_passed_over_is_recorded_first(simulation_seeds: Seeds) -> None:
    """Messages that make it raise give no strikes under skip, so all of them are passed over."""
    for seed in simulation_seeds(FULL):
        world = FilterWorld(
            seed, harmful=0.2, does=[Does.RAISE], policy=FilterPolicy.SKIP, queues=2, messages=100
        )
        finish(world)
        assert world.done, seed
        raising = {
            (queue, offset)
            for queue, records in enumerate(world.queues)
            for offset, record in enumerate(records)
            if world.harms(record)
        }
        assert world.tally.skipped == raising


@pytest.mark.fault
def test_many_filters_take_turns_with_few_workers(simulation_seeds: Seeds) -> None:
    for seed in simulation_seeds(FULL // 2):
        world = FilterWorld(seed, queues=6, messages=60, filters=6, chaos=bool(seed % 2))
        finish(world)
        assert world.done, (seed, world.tally)
        assert world.tally.workers_max <= world.server.workers_max


def test_the_same_seed_is_the_same_life() -> None:
    lives = []
    for _ in range(2):
        world = FilterWorld(7, harmful=0.02, chaos=True)
        world.run(FOR_A_WHILE_S)
        lives.append((world.now_ms, world.offsets, world.got, world.tally))
    assert lives[0] == lives[1]


def test_a_new_version_serves_soon_and_without_a_gap() -> None:
    world = FilterWorld(3, queues=1, messages=20_000)
    world.run(2.0)
    world.add_version()
    before = world.tally.answers.copy()
    world.run(1.0)
    assert world.version_running() == 2
    assert set(world.tally.answers - before) <= {Code.SUCCESS, Code.PULL_RETRY_IMMEDIATELY}
    assert not world.tally.failures
