"""Starts servers and a driver, warms them up until they are steady, and measures them."""

from __future__ import annotations

import os
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Protocol

from kourou.service.os_processes import CpuReading, resident_bytes
from kourou.service.processes import Children, free_port
from kourou_bench.driving import DriverOptions, Outcome
from kourou_bench.flames import Flames
from kourou_bench.rows import BACKLOG, COLD, RECORD_OVERHEAD_BYTES, Work
from kourou_bench.session import Driver, ready_driver
from kourou_bench.systems import Running, System

NS_IN_S = 1_000_000_000
NS_IN_US = 1_000
RESUME_SECONDS = 1.0
"""How long a system works after it was suspended, before it is measured."""

STEADY_WITHIN = 0.05
"""Two windows count as equal if they differ by less than this share of the larger one."""


@dataclass(frozen=True, slots=True)
class Scale:
    """How long and how much to measure.

    A workload is warmed up in windows of `window_seconds` until two in a row are equal, for at
    least `warm_seconds` and at most about `warm_limit`. Servers idle for `settle_seconds` before
    their memory is read. `huge_share` reduces the size of the huge rows.
    """

    seconds: float = 5.0
    warm_seconds: float = 20.0
    warm_limit: float = 120.0
    window_seconds: float = 5.0
    size: int = 1_024
    backlog: int = BACKLOG
    settle_seconds: float = 5.0
    huge_share: float = 1.0

    def options(self, work: Work, address: str, *, kind: str | None = None) -> DriverOptions:
        """The driver's options for a workload."""
        messages = -(-work.messages * self.backlog // BACKLOG)
        if work.kind == "restart":
            record = self.size + RECORD_OVERHEAD_BYTES
            messages = max(1, int(work.messages * self.huge_share / record))
        return DriverOptions(
            address=address,
            work=kind or work.kind,
            size=self.size,
            in_flight=work.in_flight,
            batch=work.batch,
            queues=work.queues,
            topics=work.topics,
            messages=messages,
            handler=work.handler,
            backlog=int(work.backlog * self.huge_share),
            delay_level=work.delay_level,
            pace=work.pace,
        )

    def record(self) -> dict[str, object]:
        """The settings for the report."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Sample:
    """One measurement (None: it failed), and the CPU time per message of servers and client, in µs.

    Cold workloads have no CPU time.
    """

    outcome: Outcome | None
    server_us: float | None = None
    client_us: float | None = None
    lags: Mapping[float, int] = field(default_factory=dict)
    """Lag of the gateway's event loop: upper bound in ms -> number of timers that were at most so
    late.
    """


class Measured(Protocol):
    """A prepared workload of a system."""

    def warm_up(self) -> str:
        """Warm up; returns "", or why the workload did not become steady."""

    def sample(self) -> Sample:
        """Measure once."""


# -- steadiness -----------------------------------------------------------------------------------
def pace_of(outcome: Outcome) -> float:
    """The value by which windows are compared: a rate or, if there is none, a time."""
    names = ("rate", "p50_ms", "mean_ms")
    return next(outcome.values[name] for name in names if name in outcome.values)


def steady(paces: Sequence[float]) -> bool:
    """True if the last two values are equal within STEADY_WITHIN."""
    if len(paces) < 2:
        return False
    one, other = paces[-2:]
    return abs(one - other) <= STEADY_WITHIN * max(one, other)


def warmed(
    window: Callable[[], Outcome],
    least_s: float,
    limit_s: float,
    clock: Callable[[], float] = time.monotonic,
) -> str:
    """Run windows of a workload until it is steady; returns "", or that it is not.

    `least_s` is the minimum time of the workload itself, `limit_s` the maximum time in total.
    """
    paces: list[float] = []
    worked_s = 0.0
    began = clock()
    while worked_s < least_s or not steady(paces):
        if clock() - began >= limit_s:
            return f"not steady after {clock() - began:,.0f} s"
        outcome = window()
        paces.append(pace_of(outcome))
        worked_s += outcome.seconds
    return ""


# -- warm measurements -----------------------------------------------------------------------------
@contextmanager
def prepared(
    system: System, work: Work, scale: Scale, flames: Flames | None = None
) -> Iterator[Measured]:
    """Prepare a workload with its servers and driver for the duration of the block.

    With `flames`, flame graphs are recorded once after the warm-up. Raises KourouError if servers
    or driver fail.
    """
    if work.kind in COLD:
        yield _Cold(system, work, scale)
        return
    with tempfile.TemporaryDirectory(prefix="kourou-bench-") as name:
        folder, port = Path(name), free_port()
        with (
            system.serve(folder / "servers", port, work.flush) as running,
            Children(folder) as children,
        ):
            options = scale.options(work, system.address(port))
            driver = ready_driver(children, f"driver-{work.kind}", system.driver(options))
            warm = _Warm(driver, running, scale, flames)
            try:
                yield warm
            finally:
                warm.resume()  # a suspended process does not end when it is asked to


class _Warm:
    """Processes that are suspended (SIGSTOP) while another system is measured.

    Idle processes of one system take processor time from the other: with an idle RocketMQ, Kourou
    made a tenth fewer transactions a second.
    """

    def __init__(
        self, driver: Driver, running: Running, scale: Scale, flames: Flames | None
    ) -> None:
        self._driver = driver
        self._flames = flames
        self._running = running
        self._servers = running.pids
        self._scale = scale

    def warm_up(self) -> str:
        """Run windows of the same workload in the same processes."""
        driver, scale = self._driver, self._scale
        unsteady = warmed(
            lambda: driver.measure(scale.window_seconds), scale.warm_seconds, scale.warm_limit
        )
        if self._flames is not None:
            pids = [*self._servers, driver.pid]
            self._flames.draw(pids, lambda: driver.measure(scale.seconds + 1), scale.seconds)
        self._signal(signal.SIGSTOP)
        return unsteady

    def resume(self) -> None:
        """Let the processes go on."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        for pid in (*self._servers, self._driver.pid):
            with suppress(ProcessLookupError):  # its log says why it ended
                os.kill(pid, number)

    def sample(self) -> Sample:
        """Measure once."""
        self.resume()
        self._driver.measure(min(RESUME_SECONDS, self._scale.seconds))
        os.sync()  # pending writes of other systems must not slow down this one
        lags = self._running.loop_lags()
        servers = [CpuReading.of(pid) for pid in self._servers]
        client = CpuReading.of(self._driver.pid)
        outcome = self._driver.measure(self._scale.seconds)
        servers_ns, client_ns = sum(one.spent_ns() for one in servers), client.spent_ns()
        lags_after = self._running.loop_lags()
        self._signal(signal.SIGSTOP)
        messages = max(1, outcome.messages)
        return Sample(
            outcome,
            servers_ns / NS_IN_US / messages,
            client_ns / NS_IN_US / messages,
            {bound: now - lags[bound] for bound, now in lags_after.items()},
        )


# -- cold measurements -----------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class _Cold:
    """A workload that starts servers; every measurement uses new ones."""

    system: System
    work: Work
    scale: Scale

    def warm_up(self) -> str:
        """Cold workloads have no warm-up."""
        return ""

    def sample(self) -> Sample:
        """Start servers in an empty folder."""
        os.sync()
        port = free_port()
        with tempfile.TemporaryDirectory(prefix="kourou-bench-") as name:
            do = _idle if self.work.kind == "idle" else _restart
            return Sample(do(self.system, self.work, self.scale, Path(name), port))


def _idle(system: System, work: Work, scale: Scale, folder: Path, port: int) -> Outcome:
    """Time from the start to the first acknowledged send, and then the memory of idle servers."""
    options = scale.options(work, system.address(port), kind="first-send")
    with Children(folder) as children:
        driver = ready_driver(children, "driver", system.driver(options))
        began_ns = time.monotonic_ns()
        driver.begin(0)
        with system.serve(folder / "servers", port, work.flush) as running:
            outcome = driver.end()
            threading.Event().wait(scale.settle_seconds)  # no requests are sent in this time
            bytes_used = sum(resident_bytes(pid) for pid in running.pids)
    values = {
        "start_s": (outcome.values["acked_at_ns"] - began_ns) / NS_IN_S,
        "rss_mb": bytes_used / 1_000_000,
    }
    return Outcome(work="idle", values=values, sent=outcome.sent, stored=outcome.stored)


def _restart(system: System, work: Work, scale: Scale, folder: Path, port: int) -> Outcome:
    """Fill a log, kill the server, and time from its restart to the next acknowledged send."""
    address = system.address(port)
    with (
        system.serve(folder / "servers", port, work.flush) as running,
        Children(folder) as children,
    ):
        load = scale.options(work, address, kind="load")
        loaded = ready_driver(children, "driver-load", system.driver(load)).measure()
        first = scale.options(work, address, kind="first-send")
        sender = ready_driver(children, "driver-first-send", system.driver(first))
        began_ns = time.monotonic_ns()
        running.start_again_after_kill()
        outcome = sender.measure()
    took_s = (outcome.values["acked_at_ns"] - began_ns) / NS_IN_S
    return Outcome(
        work="restart", values={"start_s": took_s}, sent=loaded.sent, stored=loaded.stored
    )
