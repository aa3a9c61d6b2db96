"""Which cores a process of a benchmark runs on.

Lives here: keeping a process that was started to some cores.
May not live here: which cores those are (kourou.service.cores).

State: none; the kernel keeps what is set.
"""

from __future__ import annotations

import os
from collections.abc import Set
from pathlib import Path


def keep_to(pid: int, cores: Set[int]) -> None:
    """Let all threads of a process run on these cores only, and those that they start. OSError."""
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            os.sched_setaffinity(int(task.name), cores)
        except ProcessLookupError:
            continue  # this thread has ended
