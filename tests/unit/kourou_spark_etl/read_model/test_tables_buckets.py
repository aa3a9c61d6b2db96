"""Sizes as buckets, and percentiles of their counts."""

from __future__ import annotations

from collections import Counter

from kourou_spark_etl.read_model.tables import BASE, bucket_of, percentile_ms, upper_ms


def test_every_size_lies_in_its_bucket() -> None:
    for ms in (*range(1, 3_000), 10**6, 10**9):
        bucket = bucket_of(ms)
        assert ms <= upper_ms(bucket) * (1 + 1e-6)
        assert bucket == 1 or ms > upper_ms(bucket - 1)
    assert bucket_of(-5) == bucket_of(0) == 0
    assert upper_ms(0) == 0


def test_a_percentile_is_at_most_a_bucket_too_high() -> None:
    sizes = [1 + (number * 7_919) % 10_007 for number in range(10_007)]
    counts = Counter(map(bucket_of, sizes))
    for share in (0.01, 0.5, 0.9, 0.999):
        exact = sorted(sizes)[int(share * len(sizes))]
        assert exact / 1.01 <= percentile_ms(counts, share) <= exact * BASE * 1.01
    assert percentile_ms({}, 0.5) == 0
