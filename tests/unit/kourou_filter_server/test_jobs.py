from __future__ import annotations

import pytest

from kourou.errors import DecodeError
from kourou_filter_server.jobs import bounds_of, offset_of
from kourou_rigs.filter_bench import record


def test_bounds_are_where_records_begin() -> None:
    run = record(0, 100) + record(1, 150) + record(2, 93)
    assert bounds_of(run) == [0, 100, 250, 343]
    assert bounds_of(b"") == [0]
    assert offset_of(run, 250) == 2


@pytest.mark.parametrize(
    "run",
    [
        record(0)[:-1],
        record(0) + b"\0",
        bytes(200),
        b"\xff\xff\xff\xff" + bytes(200),
        b"\x7f\xff\xff\xff" + bytes(200),
        record(0, 93)[:90],
    ],
)
def test_what_is_no_run_of_records_is_refused(run: bytes) -> None:
    with pytest.raises(DecodeError):
        bounds_of(run)
