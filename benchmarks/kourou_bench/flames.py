"""Flame graphs of Kourou's processes, drawn by py-spy while they work.

Other processes, such as a JVM, are skipped.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from kourou.errors import Unavailable
from kourou.service.process_setup import require_group

RATE_HZ = 500
WAIT_S = 60.0
_IDLE = "kourou_namesrv"
"""Skipped: the name server is idle while messages are sent."""


@dataclass(frozen=True, slots=True)
class Flames:
    """The folder of the graphs of one workload, and the prefix of their names."""

    folder: Path
    label: str

    def draw(self, pids: Iterable[int], work: Callable[[], object], seconds: float) -> list[Path]:
        """Run the workload and profile these processes for its first `seconds`.

        Returns the files. Raises MissingPackages without py-spy, Unavailable if it fails.
        """
        require_group("profile", "flame graphs")
        self.folder.mkdir(parents=True, exist_ok=True)
        watched = {pid: name for pid in pids if (name := module_of(pid)) and name != _IDLE}
        drawing = [
            (path, _py_spy(pid, path, seconds))
            for pid, name in watched.items()
            for path in [self.folder / f"{self.label}-{name.rpartition('.')[2]}.svg"]
        ]
        work()
        for path, process in drawing:
            said, _ = process.communicate(timeout=WAIT_S)
            if process.returncode or not path.exists():
                raise Unavailable(f"py-spy made no {path.name}: {said.strip()[-300:]}")
        return [path for path, _ in drawing]


def module_of(pid: int) -> str:
    """The Kourou module that a process runs; empty if it runs none."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return ""
    after = words[words.index("-m") + 1] if "-m" in words[:-1] else ""
    return after if after.partition(".")[0].partition("_")[0] == "kourou" else ""


def _py_spy(pid: int, path: Path, seconds: float) -> subprocess.Popen[str]:
    command = [
        str(Path(sys.executable).with_name("py-spy")),
        *("record", "--pid", str(pid), "--output", str(path), "--rate", str(RATE_HZ)),
        *("--duration", str(max(1, round(seconds)))),
    ]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
