"""A Raft group of real processes under load, and all that may go wrong: nothing acknowledged is
lost, nothing comes out that nobody sent, the order is kept, and an epoch has one leader.

Each seed is one fault, three with --slow, under four producers and two groups of consumers; what
they saw is judged by kourou_rigs.history_rules. A seed again:

    ./kourou test integration -k raft_nemesis --sim 4

Processes take their own time, so a seed says what is done, to whom and for how long, and not what
comes of it. How long nobody could send is printed, and written to recoveries.json in the test's
folder; it is no assertion, for this machine may have much else to do.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from statistics import median

import pytest

from kourou_rigs.history_rules import broken_rules, rival_leaders
from kourou_rigs.nemesis import Nemesis
from kourou_rigs.raft_processes import RaftProcesses
from kourou_rigs.recorded_load import RecordedLoad
from kourou_rigs.send_history import Outcome

FULL = 30
MEMBERS = 3
SLOW_FAULTS = 3
SLOW_STOP_S = 30.0


class Totals:
    """What all seeds brought."""

    def __init__(self) -> None:
        self.outcomes: Counter[Outcome] = Counter()
        self.read = 0
        self.recoveries_ms: defaultdict[str, list[int]] = defaultdict(list)

    def add(self, load: RecordedLoad) -> None:
        history = load.history
        self.outcomes.update(row.outcome for row in history.sends)
        self.read += len(history.reads)
        for what, took_ms in history.recoveries_ms():
            self.recoveries_ms[what.rpartition(" ")[0]].append(round(took_ms))

    def told(self) -> str:
        """Milliseconds from a leader's fault to the next acknowledged send: median, worst, all."""
        lines = [
            f"  {what}: median {median(each):.0f}, worst {max(each)}, of {len(each)}"
            for what, each in sorted(self.recoveries_ms.items())
        ]
        counts = ", ".join(f"{count} {outcome}" for outcome, count in self.outcomes.items())
        return "\n".join([f"{counts}, {self.read} read; ms until sends were acknowledged:", *lines])


async def one_seed(
    group: RaftProcesses, seed: int, folder: Path, totals: Totals, *, slow: bool
) -> None:
    """Load, faults, health, and the judgement; the history is kept for whoever looks why."""
    async with RecordedLoad(group.address, f"T{seed}") as load:
        try:
            stops = {"stop_s_max": SLOW_STOP_S} if slow else {}
            done = await Nemesis(group, load, seed, **stops).strike(SLOW_FAULTS if slow else 1)
            await load.finish()
        finally:
            load.history.save(folder / f"history-{seed}.jsonl")
    broken = broken_rules(load.history, load.log, groups=load.groups)
    assert not broken, f"seed {seed}, {', '.join(done)}:\n" + "\n".join(broken)
    totals.add(load)


@pytest.mark.fault
@pytest.mark.timeout(3_600)
@pytest.mark.feature("F148", "F149", "F150", "F152", "F153", "F154", "F160")
async def test_a_group_keeps_its_word_whatever_fails(
    tmp_path: Path,
    simulation_seeds: Callable[[int], Iterator[int]],
    record_property: Callable[[str, object], None],
    request: pytest.FixtureRequest,
) -> None:
    totals = Totals()
    slow: bool = request.config.getoption("--slow")
    async with RaftProcesses(tmp_path / "group", members=MEMBERS) as group:
        for seed in simulation_seeds(FULL):
            await one_seed(group, seed, tmp_path, totals, slow=slow)
        end = await group.agreed()
    logs = [group.log_of(name, end) for name in group.names]
    assert all(one == other for one, other in pairwise(logs)), "all members have the same bytes"
    led = {name: group.led(name) for name in group.names}
    assert any(led.values())
    assert rival_leaders(led) == []
    assert totals.outcomes[Outcome.OK] >= 80
    (tmp_path / "recoveries.json").write_text(json.dumps(totals.recoveries_ms), encoding="utf-8")
    record_property("recoveries_ms", dict(totals.recoveries_ms))
    print(f"\nraft nemesis: {totals.told()}")  # noqa: T201 - the figures are results of the test
