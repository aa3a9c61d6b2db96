"""A broker's measurements of itself, under a manual clock."""

from __future__ import annotations

import pytest

from kourou.broker.telemetry.measurements import Measurements


def test_what_succeeded_is_timed() -> None:
    now_ns = [0]
    measurements = Measurements(lambda: now_ns[0])

    def work(milliseconds: int, error: Exception | None = None) -> int:
        now_ns[0] += milliseconds * 1_000_000
        if error is not None:
            raise error
        return milliseconds

    assert [measurements.flush(lambda took=took: work(took)) for took in (1, 4, 20_000)]
    assert measurements.checkpoint(lambda: work(30)) == 30
    with pytest.raises(OSError, match="the disk"):
        measurements.flush(lambda: work(7, OSError("the disk")))
    flushes, checkpoints = (
        one.histogram() for one in (measurements.flushes, measurements.checkpoints)
    )
    assert dict(flushes.buckets()) == {
        **dict.fromkeys(["1", "3"], 1),
        **dict.fromkeys(["5", "7", "10", "30", "100", "300", "1000", "3000", "10000"], 2),
        "+Inf": 3,
    }
    assert flushes.total == 20_005
    assert checkpoints.buckets()[-1] == ("+Inf", 1)
    assert checkpoints.total == 30
    assert measurements.loop() == {}
