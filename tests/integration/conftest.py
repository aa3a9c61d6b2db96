"""What several files of this layer share: a command line that runs in the process of the tests.

Real processes are started by `kourou.service.local_cluster`, where processes are what is tried.
Where it is what a broker does, `kourou.testing.cluster` does the same in a tenth of the time.
"""

from __future__ import annotations

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
