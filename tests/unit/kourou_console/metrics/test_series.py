"""An hour of metrics, in which a gap stays one."""

from kourou_console.metrics.series import KEEP_MS, Samples

A, B = ("rate", ""), ("rate", "broker:a")


def test_what_was_not_told_is_none() -> None:
    samples = Samples(5_000)
    samples.note(5_000, {A: 1.0, B: 2.0})
    samples.note(10_000, {A: None})
    samples.note(15_000, {A: 3.0})
    found = samples.read([A, B, ("other", "")])
    assert found.at_ms == [5_000, 10_000, 15_000]
    assert found.values == [[1.0, None, 3.0], [2.0, None, None], [None, None, None]]
    assert samples.read([A], since_ms=10_000).values == [[None, 3.0]]


def test_rounds_that_did_not_happen_are_a_gap() -> None:
    samples = Samples(5_000)
    samples.note(5_000, {A: 1.0})
    samples.note(60_000, {A: 2.0})
    found = samples.read([A])
    assert found.at_ms == [5_000, 10_000, 60_000]
    assert found.values == [[1.0, None, 2.0]]


def test_an_hour_is_kept_and_a_series_without_a_value_goes() -> None:
    samples = Samples(60_000)
    rounds = KEEP_MS // 60_000
    samples.note(0, {A: 0.0, B: 0.0})
    for number in range(1, rounds + 1):
        samples.note(number * 60_000, {A: float(number)})
    found = samples.read([A])
    assert found.at_ms[0] == 60_000
    assert len(found.at_ms) == rounds
    assert samples.keys() == [A]


def test_only_a_fresh_value_is_the_latest() -> None:
    samples = Samples(5_000)
    assert samples.latest(A) is None
    samples.note(5_000, {A: 4.0})
    assert samples.latest(A, since_ms=5_000) == 4.0
    assert samples.latest(A, since_ms=5_001) is None
    samples.note(10_000, {})
    assert samples.latest(A) is None
