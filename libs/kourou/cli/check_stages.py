"""The stages of the checks, as data."""

from __future__ import annotations

import sys
from dataclasses import dataclass

WORKERS = 2
"""Processes for large groups of tests; the tests of one file stay together."""

PLACES = 4
"""The most test processes at once, over all stages: twice the number of cores (two) that a run is
designed for. Broker starts, waiting clients and Java leave a core idle for a third of the time or
more, which another stage can use. More processes need memory without being faster.
"""

SLOW_TEST_TIMEOUT_S = 3_600
"""Limit for one fault test with all its rounds; a default run keeps pytest's own limit."""


@dataclass(frozen=True, slots=True)
class Stage:
    """One step of the checks: commands to run, or folders of tests, separated by spaces.

    `environment` is added to that of its process. A `slow` stage runs with --slow and --soak, or
    when it is named. `suites` is how many whole suites it runs: each needs as much as a worker.
    """

    name: str
    about: str
    commands: tuple[tuple[str, ...], ...] = ()
    tests: str = ""
    workers: int = 0
    environment: tuple[tuple[str, str], ...] = ()
    slow: bool = False
    suites: int = 0

    @property
    def places(self) -> int:
        """The number of places that the stage occupies while it runs."""
        return max(1, self.workers + self.suites)


_PYTHON = (sys.executable, "-m")

STAGES: tuple[Stage, ...] = (
    Stage(
        "lint",
        "ruff: rules and format",
        commands=((*_PYTHON, "ruff", "check", "."), (*_PYTHON, "ruff", "format", "--check", ".")),
    ),
    Stage("types", "mypy --strict", commands=((*_PYTHON, "mypy"),)),
    Stage(
        "imports",
        "import rules of pyproject.toml",
        commands=(
            (
                sys.executable,
                "-c",
                "from importlinter.cli import lint_imports_command; lint_imports_command()",
            ),
        ),
    ),
    Stage("unit", "each module on its own", tests="tests/unit", workers=WORKERS),
    Stage(
        "integration", "real processes, real sockets", tests="tests/integration", workers=WORKERS
    ),
    Stage("spark", "the Spark pipeline", tests="tests/spark", workers=WORKERS),
    # A stage of its own: Playwright keeps an event loop running, next to which no other test can
    # run one.
    Stage("browser", "every page in Chromium", tests="tests/browser"),
    Stage("interop", "RocketMQ's clients in Java, C++, JavaScript", tests="tests/interop"),
    Stage("contract", "the same tests on the fake and the real broker", tests="tests/contract"),
    Stage(
        "kernel",
        "what encodes and stores, on the kernel in Python",
        tests="tests/unit/protocol tests/unit/store tests/unit/engine tests/unit/client/producer "
        "tests/unit/client/transactions tests/contract",
        workers=WORKERS,
        environment=(("KOUROU_KERNEL", "python"),),
        slow=True,
    ),
    Stage("golden", "bytes that a real RocketMQ wrote", tests="tests/golden"),
    Stage("containers", "Dockerfile, compose file, Helm chart", tests="tests/containers"),
    Stage("architecture", "layers, tidiness, pages kept current", tests="tests/architecture"),
    Stage("simulation", "whole systems from seeds", tests="tests/simulation", workers=WORKERS),
)
"""In the order of their start: first stages that finish within seconds, then long ones that often
wait, finally those that are short or keep all cores busy until the end.
"""

ALLOWED_SKIPS: dict[str, str] = {
    "needs root": "a test mounts a small file system: run as root",
    "needs PostgreSQL": "tests start, freeze and stop a real server; install Debian's postgresql",
    "needs a package index": "tests install packages and read Docker's seccomp profile",
    "needs a kernel layer": "filters run in a sandbox; `kourou doctor` names the missing layer",
    "needs libseccomp": "a test puts seccomp profiles into force; install Debian's libseccomp2",
    "needs another client": "a test runs RocketMQ's Java client or the like; docs/testing.md",
    "needs Java": "Spark runs on it; install Debian's openjdk-17-jre-headless",
    "needs Chromium": "the console's pages are tested in a browser; install Debian's chromium",
    "needs Prometheus": "alert rules and dashboards are tested on it; install Debian's prometheus",
    "needs a C compiler": "the record kernel is compiled into a wheel; install Debian's gcc",
    "needs Node": "the console's functions are tested on it; install Debian's nodejs",
    "needs Helm": "the chart of deploy/helm is rendered; .ci/install builds Helm where Go is",
    "needs systemd": "the units of deploy/systemd are booted; install Debian's systemd-container",
    "needs a peer": "a test runs `kourou bench --peers`; benchmarks/README.md says how",
}
"""Prefixes of the permitted skip reasons; a skip for any other reason fails the run."""


def may_skip(reason: str) -> bool:
    """True if docs/testing.md lists this reason."""
    return any(reason.startswith(known) for known in ALLOWED_SKIPS)
