"""What the bench of tracing makes of its turns."""

from __future__ import annotations

from kourou_bench.tracing_run import Turn, figures


def test_ratios_are_those_of_each_round_and_not_of_medians() -> None:
    turns = {
        "plain": [Turn(100, 10), Turn(200, 10), Turn(400, 20)],
        "traced": [Turn(90, 11), Turn(190, 12), Turn(200, 20)],
    }
    found = figures(turns)
    assert (found["plain_sends_per_s"], found["traced_sends_per_s"]) == (200, 190)
    assert found["ratio_of_sends"] == 0.9
    assert found["ratio_of_cpu"] == 1.1
