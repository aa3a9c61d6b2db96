"""What every test may rely on, and what a run writes down about itself."""

from __future__ import annotations

import faulthandler
import json
import os
import re
import time
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import IO, Any

import pytest
from hypothesis import settings

from kourou_rigs.postgres import MISSING, PostgresServer, find_programs

FAST_SHARE, SLOW_SHARE = 10, 3
"""A default run, and one with --slow, do one in so many rounds of a fault test; --soak does all.

With all rounds, --slow took 2 h 40 on two slow cores, so that it was run too rarely.
"""

EXAMPLES = 300
"""Examples of each Hypothesis property with --soak; other runs try the same share of them."""

FUZZ_EXAMPLES, FUZZ_S_MAX = 50_000, 3_600
"""Examples of each property marked fuzz with --soak, and how long each property may take.

Each takes a minute or more, all of them an hour or more; alone: `pytest tests/unit -m fuzz --soak`.
"""

SAVE_INTERVAL_S = 2.0
"""How often a resumable run writes down what has passed so far."""

HANG_GRACE_S = 60.0
"""A test that its own timeout cannot end, because nothing raises the exception, ends the process
this much later, with the stacks of all threads, and with it the run of its stage.
"""

_FEATURE = re.compile(r"F\d{3}")
_CURRENT = pytest.StashKey[pytest.Item]()
_MARKS = pytest.StashKey[list[tuple[str, str, bool]]]()
_STACKS = pytest.StashKey[IO[str]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("kourou")
    group.addoption("--slow", action="store_true", help="a third of all rounds, slow tests too")
    group.addoption("--soak", action="store_true", help="all rounds, and tests marked soak: hours")
    group.addoption("--compose", action="store_true", help="bring docker-compose.yml up for real")
    group.addoption("--sim", type=int, metavar="SEED", help="run simulations with this seed only")
    group.addoption("--record", type=Path, metavar="FILE", help="write the outcomes as JSON")
    group.addoption("--list-marks", type=Path, metavar="FILE", help="write the feature marks")
    group.addoption("--rewrite", action="store_true", help="write golden copies again")
    group.addoption("--resume", action="store_true", help="leave out what passed in --record FILE")


def pytest_configure(config: pytest.Config) -> None:
    # A busy machine must not fail a test: properties are about results, benchmarks about time.
    examples = EXAMPLES // share_of(config)
    settings.register_profile("kourou", deadline=None, max_examples=examples)
    settings.load_profile("kourou")
    target: Path | None = config.getoption("--record")
    if target is not None and not hasattr(config, "workerinput"):
        config.pluginmanager.register(RunRecord(target, config.getoption("--resume")))


def pytest_sessionstart(session: pytest.Session) -> None:
    """Write the stacks of a crash or a hang to a file next to the record: in the log of a run they
    are among what other processes print at the same time.
    """
    target: Path | None = session.config.getoption("--record")
    if target is None:
        stacks = os.fdopen(os.dup(2), "w")
    else:
        target.parent.mkdir(parents=True, exist_ok=True)
        stacks = target.with_suffix(".stacks").open("a", encoding="utf-8")
    session.config.stash[_STACKS] = stacks
    faulthandler.enable(stacks)


def share_of(config: pytest.Config) -> int:
    """A run does one in so many rounds."""
    if config.getoption("--soak"):
        return 1
    return SLOW_SHARE if config.getoption("--slow") else FAST_SHARE


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Check the feature marks, hand them to the reports, and leave out what was not asked for.

    Slow, soak and compose tests are deselected and not skipped: a skip means that something is
    missing. Each is asked for by its option, or by -m.
    """
    listing: Path | None = config.getoption("--list-marks")
    unwanted = [
        name
        for name in ("slow", "soak", "compose")
        if not config.getoption(f"--{name}") and name not in config.option.markexpr
    ]
    before = _passed_before(config)
    kept: list[pytest.Item] = []
    dropped: list[pytest.Item] = []
    marks: set[tuple[str, str, bool]] = set()
    for item in items:
        for mark in item.iter_markers("feature"):
            for number in mark.args:
                if not isinstance(number, str) or not _FEATURE.fullmatch(number):
                    raise pytest.UsageError(f"{item.nodeid}: {number!r} is no F-number")
                item.user_properties.append(("feature", number))
                slow = any(item.get_closest_marker(name) for name in ("slow", "soak", "compose"))
                marks.add((number, _test_id(item.nodeid), slow))
        drop = item.nodeid in before or any(item.get_closest_marker(name) for name in unwanted)
        (dropped if drop else kept).append(item)
    config.stash[_MARKS] = sorted(marks)
    if hasattr(config, "workeroutput"):
        config.workeroutput["marks"] = config.stash[_MARKS]
    if listing is not None:
        listing.write_text(json.dumps(config.stash[_MARKS]), encoding="utf-8")
    if dropped:
        config.hook.pytest_deselected(items=dropped)
        items[:] = kept
    if config.getoption("--soak"):
        _try_many(kept)


def _try_many(items: list[pytest.Item]) -> None:
    """Raise the number of examples of properties about decoders."""
    fuzzed = [item for item in items if item.get_closest_marker("fuzz")]
    for item in fuzzed:
        item.add_marker(pytest.mark.timeout(FUZZ_S_MAX))
    for function in {item.function for item in fuzzed if isinstance(item, pytest.Function)}:
        settings(max_examples=FUZZ_EXAMPLES)(function)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    mark = item.get_closest_marker("timeout")
    general_s = item.config.getoption("timeout") or item.config.getini("timeout")
    if limit_s := float(mark.args[0] if mark else general_s or 0):
        stacks = item.config.stash[_STACKS]
        faulthandler.dump_traceback_later(limit_s + HANG_GRACE_S, exit=True, file=stacks)
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()


def pytest_runtest_setup(item: pytest.Item) -> None:
    item.config.stash[_CURRENT] = item


@pytest.fixture(scope="session")
def rounds(request: pytest.FixtureRequest) -> Callable[[int], int]:
    """`rounds(full)`: how many rounds a fault test does: all with --soak, else a share of them.

    What was asked for goes into the run's record, so that the counts can be printed at the end.
    """
    config = request.config
    share = share_of(config)

    def count(full: int) -> int:
        done = max(1, full // share)
        config.stash[_CURRENT].user_properties.append(("rounds", [done, full]))
        return done

    return count


@pytest.fixture(scope="session")
def simulation_seeds(
    request: pytest.FixtureRequest, rounds: Callable[[int], int]
) -> Callable[[int], Iterator[int]]:
    """`simulation_seeds(full)`: the seeds a simulation runs; `--sim SEED` narrows it to one."""
    only: int | None = request.config.getoption("--sim")

    def seeds(full: int) -> Iterator[int]:
        return iter(range(rounds(full))) if only is None else iter([only])

    return seeds


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A PostgreSQL server of this run's own; each test asks it for a new database."""
    if find_programs() is None:
        pytest.skip(f"needs PostgreSQL: {MISSING}")
    with PostgresServer() as server:
        yield server


class RunRecord:
    """Gathers what happened to every test and writes it at the end, for `./kourou test`."""

    def __init__(self, target: Path, resume: bool) -> None:
        self.target = target
        self.resume = resume
        self.passed: set[str] = set()
        self.failed: set[str] = set()
        self.skipped: dict[str, str] = {}
        self.features: dict[str, set[str]] = {}
        self.marks: set[tuple[str, str, bool]] = set()
        self.rounds: dict[str, list[int]] = {}
        self.without_engine = 0
        self.saved_at = time.monotonic()
        if resume and target.exists():
            earlier = json.loads(target.read_text(encoding="utf-8"))
            self.passed.update(earlier["passed"])
            self.rounds.update(earlier["rounds"])
            self.features.update({key: set(tests) for key, tests in earlier["features"].items()})

    def pytest_deselected(self, items: list[pytest.Item]) -> None:
        """Count the tests of --compose, so that a run without it says what it left out."""
        for item in items:
            asked = item.config.getoption("--compose") or "compose" in item.config.option.markexpr
            if item.get_closest_marker("compose") and not asked:
                self.without_engine += 1

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Of a run in one process; with workers, each tells at its end."""
        self.marks.update(session.config.stash.get(_MARKS, []))

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        self.marks.update(map(tuple, getattr(node, "workeroutput", {}).get("marks", ())))

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.failed.add(report.nodeid)
        elif report.skipped:
            self.skipped[report.nodeid] = _reason(report)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed.add(report.nodeid)
        elif report.skipped:
            self.skipped[report.nodeid] = _reason(report)
        elif report.when == "call":
            self.passed.add(report.nodeid)
            for name, value in report.user_properties:
                if name == "feature":
                    self.features.setdefault(str(value), set()).add(_test_id(report.nodeid))
                elif name == "rounds" and isinstance(value, list):
                    before = self.rounds.get(_test_id(report.nodeid), [0, 0])
                    self.rounds[_test_id(report.nodeid)] = [
                        before[0] + value[0],
                        before[1] + value[1],
                    ]
        if self.resume and time.monotonic() - self.saved_at > SAVE_INTERVAL_S:
            self.save()

    def pytest_sessionfinish(self) -> None:
        self.save()

    def save(self) -> None:
        bad = {_test_id(node) for node in self.failed}
        proved = {number: sorted(tests - bad) for number, tests in sorted(self.features.items())}
        outcome = {
            "passed": sorted(self.passed - self.failed),
            "failed": sorted(self.failed),
            "skipped": dict(sorted(self.skipped.items())),
            "features": {number: tests for number, tests in proved.items() if tests},
            "marks": sorted(self.marks),
            "rounds": dict(sorted(self.rounds.items())),
            "without_engine": self.without_engine,
        }
        self.target.parent.mkdir(parents=True, exist_ok=True)
        draft = self.target.with_suffix(".new")
        draft.write_text(json.dumps(outcome, indent=1) + "\n", encoding="utf-8")
        draft.replace(self.target)
        self.saved_at = time.monotonic()


def _passed_before(config: pytest.Config) -> frozenset[str]:
    target: Path | None = config.getoption("--record")
    if not config.getoption("--resume") or target is None or not target.exists():
        return frozenset()
    return frozenset(json.loads(target.read_text(encoding="utf-8"))["passed"])


def _reason(report: pytest.CollectReport | pytest.TestReport) -> str:
    """Why it was skipped, as pytest keeps it: (file, line, 'Skipped: reason')."""
    detail = report.longrepr
    text = detail[2] if isinstance(detail, tuple) else str(detail)
    return text.removeprefix("Skipped: ")


def _test_id(nodeid: str) -> str:
    """The test without its parameters: one line in a page, whatever it was run with."""
    return nodeid.split("[", 1)[0]
