"""A ledger keeps every delivery of a member that was killed, and can be read while it grows."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from kourou_demo.ledger import Ledger, LedgerWriter, distinct


def test_deliveries_are_read_while_more_come(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    ledger = Ledger(path)
    assert ledger.count == 0
    assert ledger.rows().tolist() == []
    with LedgerWriter(path) as writer:
        writer.add([7, 1])
        assert (ledger.count, ledger.rows().tolist()) == (2, [7, 1])
        writer.add([336_775])
        assert ledger.rows(2).tolist() == [336_775]
        assert ledger.rows(3).tolist() == []


def test_a_kill_loses_nothing_that_was_added(tmp_path: Path) -> None:
    source = (
        "import os, signal, sys; from pathlib import Path\n"
        "from kourou_demo.ledger import LedgerWriter\n"
        "LedgerWriter(Path(sys.argv[1])).add([1, 2, 3])\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    path = tmp_path / "ledger"
    done = subprocess.run([sys.executable, "-c", source, str(path)], check=False)
    assert done.returncode == -signal.SIGKILL
    assert Ledger(path).rows().tolist() == [1, 2, 3]


def test_distinct_joins_members(tmp_path: Path) -> None:
    for name, rows in (("a", [3, 1, 1]), ("b", [2, 3])):
        with LedgerWriter(tmp_path / name) as writer:
            writer.add(rows)
    parts = [Ledger(tmp_path / name).rows() for name in ("a", "b")]
    assert distinct(parts).tolist() == [1, 2, 3]
    assert distinct([]).tolist() == []
