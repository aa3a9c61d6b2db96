"""Reading what processes hold, without counting shared pages twice."""

from __future__ import annotations

import os

import pytest

from kourou.cli.bench import memory_run
from kourou.cli.bench.families import resident_bytes
from kourou.errors import ConfigError


def test_the_share_of_a_process_is_a_part_of_what_it_has_resident() -> None:
    share = memory_run.share_bytes(os.getpid())
    assert 1 << 20 < share <= resident_bytes(os.getpid())


def test_where_there_is_no_proc_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_run, "ROLLUP", "/proc/there-is-none")
    with pytest.raises(ConfigError, match="/proc"):
        memory_run.run_memory_bench(settle_seconds=0, as_json=True)
