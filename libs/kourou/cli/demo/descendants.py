"""The processes that a child of ours has started, held until they have ended.

Lives here: finding and holding them. May not live here: whose they are.

State: none.
"""

from __future__ import annotations

import os
from contextlib import suppress

from kourou.cli.bench.families import family
from kourou.service.process_names import Running


def hold_descendants(pid: int) -> list[Running]:
    """Those that a process started, and those that they did; the caller closes them.

    Held is what was of the family before and after: no number has come to mean another process.
    Nothing where a system has no way to hold processes.
    """
    if not hasattr(os, "pidfd_open"):
        return []
    found = []
    for one in family(pid):
        with suppress(OSError):  # it ended just now
            found.append(Running(one, os.pidfd_open(one)))
    still = set(family(pid)) - {pid}
    for gone in found:
        if gone.pid not in still:
            gone.close()
    return [running for running in found if running.pid in still]
