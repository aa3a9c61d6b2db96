"""What several files of this layer share: command lines, in the process of the tests or in a shell.

Real processes are started by `kourou.service.local_cluster`, where processes are what is tried.
Where it is what a broker does, `kourou.testing.cluster` does the same in a tenth of the time.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import StringIO

import pytest

from kourou.cli.main import main


@dataclass(frozen=True)
class Done:
    """What a command line said, under the names of subprocess.CompletedProcess."""

    returncode: int
    stdout: str
    stderr: str


@pytest.fixture(scope="session")
def kourou_admin() -> Callable[..., Done]:
    """`kourou_admin(address, "topicList")` does what `kourou admin topicList` does."""

    def run(address: str, *arguments: str) -> Done:
        out, err = StringIO(), StringIO()
        with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
            patch.setenv("NAMESRV_ADDR", address)
            code = main(("admin", *arguments))
        return Done(code, out.getvalue(), err.getvalue())

    return run


@pytest.fixture(scope="session")
def typed() -> Callable[[str, str], str]:
    """`typed(block, address)` does in bash what a page tells to type; what it printed.

    The console that the page means is at `address`.
    """

    def run(block: str, address: str) -> str:
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", block.replace("127.0.0.1:8080", address)],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, (block, done.stdout, done.stderr)
        return done.stdout

    return run
