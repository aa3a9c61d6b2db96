"""One measurement: servers up, a driver's work, its counts checked, everything gone again.

Lives here: what happens around a driver, start-up times, memory. May not live here: the order of
measurements (kourou.cli.bench.comparison), how a system is started (kourou.cli.bench.systems).
"""

from __future__ import annotations

import os
import tempfile
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from kourou.cli.bench.driving import DriverOptions, Outcome, read_outcome
from kourou.cli.bench.families import resident_bytes
from kourou.cli.bench.rows import BACKLOG, RECORD_OVERHEAD_BYTES, Work
from kourou.cli.bench.systems import System, complaint, free_port
from kourou.errors import TimedOut, Unavailable
from kourou.service.processes import Child, Children

DRIVER_LIMIT_S = 3_600.0
NS_IN_S = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Scale:
    """How much of everything.

    Servers are idle for `settle_seconds` before their memory is read. `huge_share` makes the huge
    rows smaller, to try them out.
    """

    seconds: float = 5.0
    warm_seconds: float = 5.0
    size: int = 1_024
    backlog: int = BACKLOG
    settle_seconds: float = 5.0
    huge_share: float = 1.0

    def options(self, work: Work, address: str, *, kind: str | None = None) -> DriverOptions:
        """The driver's options for a work."""
        messages = -(-work.messages * self.backlog // BACKLOG)
        if work.kind == "restart":
            record = self.size + RECORD_OVERHEAD_BYTES
            messages = max(1, int(work.messages * self.huge_share / record))
        return DriverOptions(
            address=address,
            work=kind or work.kind,
            size=self.size,
            seconds=self.seconds,
            warm_seconds=self.warm_seconds,
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

    def told(self) -> dict[str, object]:
        """For those who read the figures."""
        return asdict(self)


def measure(system: System, work: Work, scale: Scale) -> Outcome:
    """Do a work once and return what came out, counts checked.

    Raises KourouError when servers or driver fail, and when a message is missing or came twice.
    """
    os.sync()  # what the measurement before left unwritten is not to be paid by this one
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="kourou-bench-") as name:
        folder = Path(name)
        if work.kind == "idle":
            outcome = _idle(system, work, scale, folder, port)
        elif work.kind == "restart":
            outcome = _restart(system, work, scale, folder, port)
        else:
            with system.serve(folder / "servers", port, work.flush):
                options = scale.options(work, system.address(port))
                with Children(folder) as children:
                    outcome = finished(_driver(children, system, options))
    outcome.check()
    return outcome


def _idle(system: System, work: Work, scale: Scale, folder: Path, port: int) -> Outcome:
    """Start to first acknowledged send, and then the memory of servers that have nothing to do."""
    options = scale.options(work, system.address(port), kind="first-send")
    with Children(folder) as children:
        command = system.driver(options)  # may have to be compiled, which is not to be timed
        began_ns = time.monotonic_ns()
        driver = children.start("driver", command, says_ready=False)
        with system.serve(folder / "servers", port, work.flush) as running:
            outcome = finished(driver)
            threading.Event().wait(scale.settle_seconds)  # nothing is asked of anybody meanwhile
            bytes_used = sum(resident_bytes(pid) for pid in running.pids)
    values = {
        "start_s": (outcome.values["acked_at_ns"] - began_ns) / NS_IN_S,
        "rss_mb": bytes_used / 1_000_000,
    }
    return Outcome(work="idle", values=values, sent=outcome.sent, stored=outcome.stored)


def _restart(system: System, work: Work, scale: Scale, folder: Path, port: int) -> Outcome:
    """Fill a log, kill what keeps it, and time from its new start to the next acknowledged send."""
    address = system.address(port)
    with (
        system.serve(folder / "servers", port, work.flush) as running,
        Children(folder) as children,
    ):
        loaded = finished(_driver(children, system, scale.options(work, address, kind="load")))
        began_ns = time.monotonic_ns()
        running.start_again_after_kill()
        first = scale.options(work, address, kind="first-send")
        outcome = finished(_driver(children, system, first))
    took_s = (outcome.values["acked_at_ns"] - began_ns) / NS_IN_S
    return Outcome(
        work="restart", values={"start_s": took_s}, sent=loaded.sent, stored=loaded.stored
    )


def _driver(children: Children, system: System, options: DriverOptions) -> Child:
    return children.start(f"driver-{options.work}", system.driver(options), says_ready=False)


def finished(driver: Child) -> Outcome:
    """What it printed at its end, for which this waits. TimedOut, or Unavailable if it failed."""
    code = driver.wait_for_exit(DRIVER_LIMIT_S)
    if code is None:
        driver.kill()
        raise TimedOut(f"{driver.name} was not done after {DRIVER_LIMIT_S:g} s")
    if code:
        raise Unavailable(f"{driver.name} ended with {code}: {complaint(driver)}")
    return read_outcome(driver.log_path.read_text(encoding="utf-8", errors="replace"))
