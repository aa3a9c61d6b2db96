"""Children of a child are found and held."""

from __future__ import annotations

import os
import subprocess
import sys

from kourou.cli.demo.descendants import hold_descendants

SLEEPING = "import signal; print('up', flush=True); signal.pause()"
PARENT = f"""
import subprocess, sys
with subprocess.Popen([sys.executable, '-c', {SLEEPING!r}]) as child:
    child.wait()
"""


def test_those_that_a_process_started_are_held_and_no_others() -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        parent.stdout.readline()
        (held,) = hold_descendants(parent.pid)
        parent.kill()
        parent.wait()
        assert held.pid not in (parent.pid, os.getpid())
        assert not held.wait_for_end(0)
        held.kill()
        assert held.wait_for_end(60)
        held.kill()  # which is too late, and no trouble
        held.close()


def test_a_process_without_children_has_none() -> None:
    with subprocess.Popen([sys.executable, "-c", SLEEPING], stdout=subprocess.PIPE) as alone:
        assert alone.stdout is not None
        alone.stdout.readline()
        assert hold_descendants(alone.pid) == []
        alone.kill()
