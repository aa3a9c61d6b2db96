"""Where processes of a benchmark run."""

import os
import subprocess
import sys
from pathlib import Path

from kourou.cli.bench.cores import keep_to

THREADS = """
import signal, threading
threading.Thread(target=threading.Event().wait, daemon=True).start()
print("up", flush=True)
signal.pause()
"""


def test_every_thread_is_kept() -> None:
    core = min(os.sched_getaffinity(0))
    with subprocess.Popen([sys.executable, "-c", THREADS], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        keep_to(child.pid, {core})
        tasks = Path(f"/proc/{child.pid}/task").iterdir()
        kept = [os.sched_getaffinity(int(task.name)) for task in tasks]
        child.kill()
    assert len(kept) == 2
    assert kept == [{core}, {core}]
