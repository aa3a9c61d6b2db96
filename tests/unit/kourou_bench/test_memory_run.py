"""Reading what processes hold, without counting shared pages twice."""

from __future__ import annotations

import subprocess

import pytest

from kourou.errors import ConfigError
from kourou.service.os_processes import resident_bytes
from kourou_bench import memory_run


def test_the_share_of_a_process_is_a_part_of_what_it_has_resident() -> None:
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"up\n")
        process.stdin.flush()
        assert process.stdout.readline() == b"up\n"
        share = memory_run.share_bytes(process.pid)
        assert 1 << 15 < share <= resident_bytes(process.pid)
        process.stdin.close()


def test_a_process_that_just_ended_has_no_share(monkeypatch: pytest.MonkeyPatch) -> None:
    with subprocess.Popen(["true"]) as ended:
        ended.wait()
    monkeypatch.setattr(memory_run, "family", lambda _pid: iter([ended.pid]))
    assert memory_run.share_bytes(ended.pid) == 0


def test_where_there_is_no_proc_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_run, "ROLLUP", "/proc/there-is-none")
    with pytest.raises(ConfigError, match="/proc"):
        memory_run.run_memory_bench(settle_seconds=0, as_json=True)
