"""`kourou test`: runs every check of the project, stages in parallel, and prints a summary.

State: soft, in `.kourou-test/`: a log and a record per stage, and what a slow run has passed so
far.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any

from kourou.cli.checkout import find_checkout
from kourou.errors import ConfigError, Unavailable
from kourou.service.process_setup import require_group

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


END_S_MAX = 20.0
"""After Ctrl-C, fixtures stop their servers; processes that take longer than this are killed."""

SILENT_S_MAX = 600.0
"""A process of the checks that neither ends nor prints for this long hangs. A test may take two
minutes, and pytest prints a mark after each.
"""

LOOK_S = 5.0
"""How often a waiting thread looks whether the log of its process has grown."""

UNCOMPILED = "PYTHONDONTWRITEBYTECODE"
"""This variable is removed from their environment: a run starts hundreds of processes, and each
would compile all sources again, a quarter of the time that the start of a broker takes.
"""


class CheckProcesses:
    """The running processes of the checks; an exception in the `with` block ends all of them.

    Each process leads its own process group. Ctrl-C therefore reaches only this process, which then
    signals every group once. A pytest that received the signal twice, from the terminal and from
    here, would abort its cleanup. `run` may be called from any thread.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._changed = threading.Condition()
        self._running: set[subprocess.Popen[bytes]] = set()
        self._over = False

    def __enter__(self) -> CheckProcesses:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self.end()

    def run(
        self,
        command: Sequence[str],
        log: IO[bytes],
        environment: Mapping[str, str] | None = None,
        silent_s_max: float = SILENT_S_MAX,
    ) -> int:
        """Run a command with additional environment variables, and return its exit code.

        A command that prints nothing to `log` for `silent_s_max` receives SIGABRT, so that pytest
        prints the stacks of all threads. Raises Unavailable if `end` was called before.
        """
        ours = {name: text for name, text in os.environ.items() if name != UNCOMPILED}
        with self._changed:
            if self._over:
                raise Unavailable("the checks were interrupted")
            process = subprocess.Popen(
                command,
                cwd=self._folder,
                env={**ours, **(environment or {})},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                process_group=0,
            )
            self._running.add(process)
        try:
            return _wait(process, log, silent_s_max)
        finally:
            with self._changed:
                self._running.discard(process)
                self._changed.notify_all()

    def end(self) -> None:
        """Send SIGINT to all and wait; after END_S_MAX, or a second Ctrl-C, send SIGKILL."""
        try:
            with self._changed:
                self._over = True
                for process in self._running:
                    _signal_group(process, signal.SIGINT)
                self._changed.wait_for(lambda: not self._running, END_S_MAX)
        finally:
            with self._changed:
                for process in self._running:
                    _signal_group(process, signal.SIGKILL)


def _signal_group(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    """Signal a process group, unless it has just ended."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, number)


def _wait(process: subprocess.Popen[bytes], log: IO[bytes], silent_s_max: float) -> int:
    """Wait for the end of a process, which is enforced when its log stops growing."""
    size, since = 0, time.monotonic()
    while True:
        with suppress(subprocess.TimeoutExpired):
            return process.wait(min(LOOK_S, silent_s_max))
        now = time.monotonic()
        if (written := os.fstat(log.fileno()).st_size) > size:
            size, since = written, now
        if now - since >= silent_s_max:
            break
    text = f"\nkourou: hangs: printed nothing for {silent_s_max:.0f} s; the stacks follow\n"
    os.write(log.fileno(), text.encode())
    _signal_group(process, signal.SIGABRT)
    with suppress(subprocess.TimeoutExpired):
        return process.wait(END_S_MAX)
    _signal_group(process, signal.SIGKILL)
    return process.wait()


NOTHING_COLLECTED = 5
"""pytest's exit code when a selection matched no test."""

NOTHING_MATCHED = "no match"
CONTAINERS = "containers"
"""The stage whose tests --compose includes."""

SUITES = 2
"""The suites that --compose runs, both at once: each has up to a dozen processes."""

ERASE_LINE = "\x1b[K"
LOG_LINES_SHOWN = 400
STACK_FRAMES = 6


@dataclass(frozen=True, slots=True)
class Options:
    """The options of the command line."""

    stages: Sequence[str] = ()
    slow: bool = False
    soak: bool = False
    compose: bool = False
    fresh: bool = False
    simulation_seed: int | None = None
    keyword: str | None = None

    @property
    def complete(self) -> bool:
        """True if this run covers every feature."""
        return not self.stages and self.keyword is None and self.simulation_seed is None

    @property
    def silent_s_max(self) -> float:
        """How long pytest may print nothing: tests of some runs, or their images, take an hour."""
        long = self.slow or self.soak or self.compose
        return SILENT_S_MAX + (SLOW_TEST_TIMEOUT_S if long else 0)

    @property
    def places(self) -> int:
        """How many test processes may run at once.

        A slow run has fewer, because some of its tests take an hour alone: one stage with workers,
        and one without next to it.
        """
        return WORKERS + 1 if self.slow or self.soak else PLACES


@dataclass(slots=True)
class StageOutcome:
    """The result of one stage, or of all of them."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0
    remarks: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    """Failed tests, and where a test hung."""

    features: dict[str, list[str]] = field(default_factory=dict)
    marks: list[tuple[str, str, bool]] = field(default_factory=list)
    """Feature number, test and whether it is slow, of all tests that were found."""

    rounds: dict[str, list[int]] = field(default_factory=dict)
    not_run: dict[str, str] = field(default_factory=dict)
    """Tests that were skipped for a permitted reason, and the reason: they prove nothing."""

    without_engine: int = 0
    """The number of --compose tests that a run without that option left out."""

    def add(self, other: StageOutcome) -> None:
        """Add the counts of another outcome."""
        self.passed += other.passed
        self.failed += other.failed
        self.skipped += other.skipped
        self.failures += other.failures
        for number, tests in other.features.items():
            self.features[number] = sorted({*self.features.get(number, ()), *tests})
        self.marks += other.marks
        self.rounds.update(other.rounds)
        self.not_run |= other.not_run
        self.without_engine += other.without_engine


def run_checks(options: Options) -> int:
    """Run the chosen stages and print one line for each; returns 0 only if everything passed."""
    root = find_checkout()
    stages = _chosen(options)
    if options.compose and CONTAINERS not in {stage.name for stage in stages}:
        raise ConfigError(
            f"--compose includes tests of the stage {CONTAINERS!r}, which is not among the stages "
            "of this run",
            hint=f"add {CONTAINERS}, or leave out --compose",
        )
    require_group("dev", "the test suite")
    folder = _prepare_folder(root, options)
    total = StageOutcome()
    began = time.monotonic()
    with ThreadPoolExecutor(len(stages)) as threads, CheckProcesses(root) as processes:

        def start(stage: Stage) -> Future[StageOutcome]:
            return threads.submit(_run_stage, root, folder, stage, options, processes)

        for stage, outcome, seconds in _side_by_side(stages, options.places, start):
            total.add(outcome)
            _print_stage(stage, outcome, seconds, folder)
    _print_rounds(total)
    if options.complete and not total.failed:
        total.failed += _check_proofs(root, folder, total, options)
    if total.without_engine:
        print(
            f"not run: {total.without_engine} tests on a Docker Engine; "
            f"`kourou test {CONTAINERS} --compose` runs them"
        )
    for failure in total.failures:
        print(f"failed: {failure}")
    print(f"took {time.monotonic() - began:.0f} s")
    print(f"{total.passed} passed, {total.failed} failed, {total.skipped} skipped", flush=True)
    if options.keyword is not None and not (total.passed or total.failed or total.skipped):
        raise ConfigError(
            f"no test of {' '.join(one.name for one in stages if one.tests) or 'these stages'} "
            f"matches -k {options.keyword!r}"
        )
    return 1 if total.failed else 0


def _chosen(options: Options) -> list[Stage]:
    names, slow = options.stages, options.slow or options.soak
    stages = [
        replace(stage, suites=SUITES) if options.compose and stage.name == CONTAINERS else stage
        for stage in STAGES
    ]
    known = [stage.name for stage in stages]
    for name in names:
        if name not in known:
            raise ConfigError(f"unknown stage {name!r}", hint=f"stages: {' '.join(known)}")
    if names:
        return [stage for stage in stages if stage.name in names]
    return [stage for stage in stages if slow or not stage.slow]


def _side_by_side(
    stages: Sequence[Stage], places: int, start: Callable[[Stage], Future[StageOutcome]]
) -> Iterator[tuple[Stage, StageOutcome, float]]:
    """Start each stage as soon as its places are free; yields outcome and seconds.

    Of the stages that fit, the first one starts, so one that needs many places does not keep places
    empty. A stage that needs more than exist runs alone. Outcomes are yielded as stages finish.
    """
    waiting = list(stages)
    running: dict[Future[StageOutcome], tuple[Stage, float]] = {}
    while waiting or running:
        taken = sum(stage.places for stage, _ in running.values())
        while stage := next(
            (one for one in waiting if not running or taken + one.places <= places), None
        ):
            waiting.remove(stage)
            running[start(stage)] = stage, time.monotonic()
            taken += stage.places
        _say_what_runs([stage.name for stage, _ in running.values()])
        done, _ = wait(running, return_when=FIRST_COMPLETED)
        for future in [one for one in running if one in done]:
            stage, began = running.pop(future)
            yield stage, future.result(), time.monotonic() - began


def _say_what_runs(names: Sequence[str]) -> None:
    """Show the running stages on a terminal; the next output overwrites the line."""
    if sys.stdout.isatty():
        print(f"\r{ERASE_LINE}… {', '.join(names)}\r", end="", flush=True)


def _prepare_folder(root: Path, options: Options) -> Path:
    """The folder of logs and records; for a slow run it has the results for the same code."""
    top = root / ".kourou-test"
    if not (options.slow or options.soak):
        folder = top / "last"
        shutil.rmtree(folder, ignore_errors=True)
    else:
        kind = "soak" if options.soak else "slow"
        folder = top / f"{kind}-{_fingerprint(root)}"
        for other in top.glob(f"{kind}-*"):
            if options.fresh or other != folder:
                shutil.rmtree(other)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _fingerprint(root: Path) -> str:
    """A hash of the code, including uncommitted changes."""
    digest = hashlib.sha256((root / "pyproject.toml").read_bytes())
    for top in ("libs", "services", "benchmarks", "examples", "tests"):
        for path in sorted((root / top).rglob("*.py")):
            digest.update(str(path.relative_to(root)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:12]


def _run_stage(
    root: Path, folder: Path, stage: Stage, options: Options, processes: CheckProcesses
) -> StageOutcome:
    log = folder / f"{stage.name}.log"
    if not stage.tests:
        failed = not _run_commands(log, stage.commands, processes)
        return StageOutcome(failed=int(failed))
    if not any(any((root / tests).rglob("test_*.py")) for tests in stage.tests.split()):
        return StageOutcome(remarks=["none yet"])
    record = folder / f"{stage.name}.json"
    stacks = record.with_suffix(".stacks")
    stacks.unlink(missing_ok=True)
    command = _pytest_command(stage, record, options)
    with log.open("wb") as out:
        code = processes.run(command, out, dict(stage.environment), options.silent_s_max)
    if code == NOTHING_COLLECTED and (options.keyword or options.slow or options.soak):
        outcome = _read_record(record)
        if not outcome.passed:
            outcome.remarks.append(NOTHING_MATCHED)
        return outcome
    outcome = _read_record(record)
    if code:
        outcome.failures += find_stacks(stacks, root)
    if code and not outcome.failed:
        outcome.failed = 1
        outcome.remarks.append(f"pytest ended with {code}")
    return outcome


def _run_commands(log: Path, commands: Sequence[Sequence[str]], processes: CheckProcesses) -> bool:
    with log.open("wb") as out:
        codes = [processes.run(command, out) for command in commands]
    return not any(codes)


def _pytest_command(stage: Stage, record: Path, options: Options) -> list[str]:
    command = [sys.executable, "-m", "pytest", *stage.tests.split(), "-q"]
    command += ["--record", str(record), "-p", "no:cacheprovider", "--durations=5"]
    if stage.workers:
        command += ["-n", str(stage.workers), "--dist", "loadfile", "--max-worker-restart=0"]
    if options.keyword is not None:
        command += ["-k", options.keyword]
    if options.simulation_seed is not None:
        command += ["--sim", str(options.simulation_seed)]
    if options.slow or options.soak:
        command += ["--slow", "--resume", f"--timeout={SLOW_TEST_TIMEOUT_S}"]
    if options.soak:
        command += ["--soak"]
    if options.compose:
        command += ["--compose"]
    return command


def _read_record(path: Path) -> StageOutcome:
    """The record that a pytest run wrote; empty if it ended too early."""
    if not path.exists():
        return StageOutcome(failed=1, remarks=["the run left no record"])
    record: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    outcome = StageOutcome(
        passed=len(record["passed"]),
        failed=len(record["failed"]),
        skipped=len(record["skipped"]),
        features=record["features"],
        marks=record["marks"],
        failures=record["failed"],
        rounds=record["rounds"],
        without_engine=record["without_engine"],
    )
    for test, reason in record["skipped"].items():
        if may_skip(reason):
            outcome.not_run[test.split("[", 1)[0]] = reason
        else:
            outcome.failed += 1
            outcome.remarks.append(f"a skip that is not allowed: {test}: {reason}")
    return outcome


def _print_stage(stage: Stage, outcome: StageOutcome, seconds: float, folder: Path) -> None:
    result = "FAILED" if outcome.failed else "ok"
    if outcome.remarks in (["none yet"], [NOTHING_MATCHED]):
        result = outcome.remarks[0]
    counts = f"{outcome.passed:>5} passed" if outcome.passed else ""
    if outcome.skipped:
        counts += f", {outcome.skipped} skipped"
    start = ERASE_LINE if sys.stdout.isatty() else ""
    print(f"{start}{stage.name:<13} {stage.about:<46} ", end="")
    print(f"{result:<8} {seconds:6.1f} s {counts}", flush=True)
    if not outcome.failed:
        return
    log = folder / f"{stage.name}.log"
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    if len(lines) > LOG_LINES_SHOWN:
        print(f"    … the last {LOG_LINES_SHOWN} of {len(lines)} lines of {log}")
    for line in lines[-LOG_LINES_SHOWN:]:
        print(f"    {line}")
    for remark in outcome.remarks:
        print(f"    {remark}")


_FRAME = re.compile(r'  File "([^"]+)", line (\d+) in (\S+)')


def find_stacks(path: Path, root: Path) -> list[str]:
    """A line for each thread of a process that crashed or hung: why, and its own innermost frames.

    The file has hundreds of lines, mostly pytest's; these lines end the run's output.
    """
    found: list[str] = []
    frames: list[str] | None = None
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    for line in [*lines, ""]:
        if line.startswith(("Fatal Python error", "Timeout")):
            found.append(line)
        elif line.endswith("(most recent call first):"):
            frames = []
        elif frames is not None and (match := _FRAME.match(line)):
            source, number, function = match.groups()
            if source.startswith(f"{root}/") and ".venv/" not in source:
                frames.append(f"{source.removeprefix(f'{root}/')}:{number} {function}")
        elif frames is not None:
            if frames:
                found.append("in " + " < ".join(frames[:STACK_FRAMES]))
            frames = None
    return found


def _print_rounds(total: StageOutcome) -> None:
    """Print how many rounds the fault tests ran, because few rounds prove little."""
    if not total.rounds:
        return
    print("\nfault tests: rounds done of rounds in a slow run")
    for test, (done, full) in sorted(total.rounds.items()):
        print(f"  {done:>8,} of {full:>8,}  {test.removeprefix('tests/')}")
    print()


def _check_proofs(root: Path, folder: Path, total: StageOutcome, options: Options) -> int:
    """Check that this run proved every row that docs/FEATURES.md calls done, and that it is
    current.

    A skipped test proves nothing: a row needs another proof that passed.
    """
    target = folder / "features.json"
    target.write_text(
        json.dumps(
            {
                "slow": options.slow,
                "features": total.features,
                "marks": sorted(total.marks),
                "not_run": dict(sorted(total.not_run.items())),
            },
            indent=1,
        )
        + "\n",
        encoding="utf-8",
    )
    command = (sys.executable, str(root / "docs" / "generate.py"), "--proved", str(target))
    done = subprocess.run(command, cwd=root, check=False)
    return int(done.returncode != 0)
