"""Command lines of `kourou` that end by themselves, each run in a process of its own.

The process is forked from one that has imported the services already: their import takes longer
than all that a service does before it refuses to start. It runs what the installed `kourou` runs.
"""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from kourou.cli.main import run

TIMEOUT_S = 60

_forking = multiprocessing.get_context("forkserver")
_forking.set_forkserver_preload(
    [__name__, "kourou_namesrv.app", "kourou_broker.app", "kourou_ha_replica.app"]
)


def run_kourou(
    *arguments: str, variables: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """What `kourou` with these arguments, and with these environment variables, says and does."""
    with TemporaryDirectory() as folder:
        outputs = (Path(folder, "stdout"), Path(folder, "stderr"))
        process = _forking.Process(target=_run, args=(arguments, dict(variables or {}), outputs))
        process.start()
        try:
            process.join(TIMEOUT_S)
            if process.exitcode is None:
                raise subprocess.TimeoutExpired(arguments, TIMEOUT_S)
        finally:
            process.kill()
            process.join()
        said = [path.read_text(encoding="utf-8") for path in outputs]
        return subprocess.CompletedProcess(arguments, process.exitcode, *said)


def _run(arguments: Sequence[str], variables: Mapping[str, str], outputs: Sequence[Path]) -> None:
    """Be the command line; ends the process."""
    for number, path in enumerate(outputs, start=1):
        opened = os.open(path, os.O_WRONLY | os.O_CREAT)
        os.dup2(opened, number)
        os.close(opened)
    os.environ.update(variables)
    sys.argv[1:] = arguments
    run()
