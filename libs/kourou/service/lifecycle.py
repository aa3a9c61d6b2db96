"""The lifecycle of every service: load, recover, serve, drain, stop.

The first SIGTERM or SIGINT drains and stops the service. A second one ends the process immediately,
which is safe because recovery makes no assumption about a clean stop. A failure while serving skips
drain and stop, because the state in memory may be wrong, while the log is not.

State: soft.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from enum import IntEnum, StrEnum
from pathlib import Path
from typing import NoReturn, Protocol

from kourou.errors import KourouError, Unavailable
from kourou.service.os_processes import take_name
from kourou.telemetry.logs import printable
from kourou.transport.addresses import bindable, is_loopback, split_address

_log = logging.getLogger("kourou.service")

DRAIN_S_MAX = 20.0
STOP_S_MAX = 10.0
OPEN_WARNING_S = 60.0
"""Interval between warnings that everybody on the network may do everything."""

OPEN = "open"
"""In a ready file: why the service handles requests of everybody; absent if it decides."""


class ExitCode(IntEnum):
    """The exit codes of a service's process. 70 and 75 are those of BSD's sysexits."""

    OK = 0
    USAGE = 2  # bad arguments or settings, a port in use, a store that may not be opened
    CRASHED = 70  # a broken invariant: restart the service, it recovers
    FAULTED = 75  # the disk failed or is full: repair the disk, then restart


class Phase(StrEnum):
    """A phase of the lifecycle."""

    LOAD = "load"  # settings are read; nothing is opened or changed
    RECOVER = "recover"  # ports are bound, then the state is restored from disk
    SERVE = "serve"  # requests are answered
    DRAIN = "drain"  # new requests are refused, pending ones are finished
    STOP = "stop"  # everything is flushed and closed
    END = "end"  # the process ends, with an exit code


STEPS: Mapping[Phase, Mapping[Phase, str]] = {
    Phase.LOAD: {
        Phase.RECOVER: "the settings are accepted",
        Phase.END: "a setting is refused",
    },
    Phase.RECOVER: {
        Phase.SERVE: "the state is restored from disk",
        Phase.STOP: "a port is in use, a store is refused, a disk fails",
        Phase.END: "a bug",
    },
    Phase.SERVE: {
        Phase.DRAIN: "SIGTERM or SIGINT",
        Phase.STOP: "it cannot start to serve",
        Phase.END: "it fails: the state in memory may be wrong",
    },
    Phase.DRAIN: {
        Phase.STOP: f"pending requests are finished, or take over {DRAIN_S_MAX:.0f} s",
        Phase.END: "the disk fails",
    },
    Phase.STOP: {
        Phase.END: f"everything is closed, or that takes over {STOP_S_MAX:.0f} s",
    },
    Phase.END: {},
}
"""The transitions between phases and their causes. A second signal ends any phase."""


class Service(Protocol):
    """The steps of a service. Each step may raise KourouError, which ends the service."""

    name: str

    async def recover(self, fail: Callable[[BaseException], None]) -> None:
        """Bind the ports, then restore the state from disk.

        `fail` is called if serving fails later.
        """
        ...

    async def serve(self) -> Mapping[str, str]:
        """Start to serve; returns the listening addresses by short name ("zmq", "admin")."""
        ...

    async def drain(self) -> None:
        """Finish pending requests."""
        ...

    async def stop(self) -> None:
        """Flush and close everything; also called if recover or serve failed."""
        ...

    def open_because(self) -> str:
        """Why it handles requests of everybody; "" if it decides who may send them.

        Called when it serves, then every minute, and for its metrics.
        """
        ...


def run_service(
    make: Callable[[], Service],
    *,
    ready_file: Path | None = None,
    stop_when: Callable[[Callable[[], None]], None] | None = None,
    ready: Callable[[], None] = lambda: None,
) -> int:
    """Run a service from start to end; returns the exit code.

    A failure is reported as one line on stderr. `stop_when` receives a thread-safe function that
    stops the service as SIGTERM does, for running it inside another program that handles signals
    itself. `ready` is called when the service serves.
    """
    phases = _PhaseTracker()
    try:
        service = make()
    except KourouError as error:
        print_error("kourou", error)
        phases.enter(Phase.END)
        return _exit_code(error)
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return int(runner.run(_ServiceRun(service, phases, ready_file, stop_when, ready).run()))


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Create a uvloop event loop if it is installed, else the standard one."""
    try:
        import uvloop
    except ImportError:  # not built for this platform; everything works, but more slowly
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def leave(code: int) -> NoReturn:
    """End the process.

    After a crash or a disk fault it ends immediately, because a thread may hang on the disk.
    """
    if code in (ExitCode.CRASHED, ExitCode.FAULTED):
        logging.shutdown()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


def print_error(who: str, sentence: object) -> None:
    """Write one line to stderr; unprintable characters are escaped."""
    sys.stderr.write(f"{who}: {printable(str(sentence))}\n")
    sys.stderr.flush()


def _is_on_network(address: str) -> bool:
    """Whether other machines may reach a listener, whose address is a URL or `host:port`."""
    host, _ = split_address(address.partition("://")[2] or address)
    return not is_loopback(bindable(host))


def _exit_code(error: BaseException) -> ExitCode:
    if isinstance(error, Unavailable):  # includes StoreFaulted and DiskFull
        return ExitCode.FAULTED
    if isinstance(error, KourouError):
        return ExitCode.USAGE
    return ExitCode.CRASHED


class _PhaseTracker:
    """The current phase; only transitions in STEPS are allowed."""

    def __init__(self) -> None:
        self.phase = Phase.LOAD

    def enter(self, phase: Phase) -> None:
        """Enter the next phase."""
        assert phase in STEPS[self.phase], f"{phase} cannot follow {self.phase}"
        _log.debug(
            "phase-changed: phase %(before)s -> %(after)s", {"before": self.phase, "after": phase}
        )
        self.phase = phase


class _ServiceRun:
    """One run of one service."""

    def __init__(
        self,
        service: Service,
        phases: _PhaseTracker,
        ready_file: Path | None,
        stop_when: Callable[[Callable[[], None]], None] | None,
        ready: Callable[[], None],
    ) -> None:
        self._service = service
        self._phases = phases
        self._who = f"kourou {service.name}"
        self._ready_file = ready_file
        self._stop_when = stop_when
        self._ready = ready
        self._signals = 0
        self._failure: BaseException | None = None
        self._open_because = ""

    async def run(self) -> ExitCode:
        try:
            return await self._run()
        finally:
            self._phases.enter(Phase.END)

    async def _run(self) -> ExitCode:
        self._loop = asyncio.get_running_loop()
        self._ended = asyncio.Event()
        self._catch_signals()
        if self._stop_when is not None:
            self._stop_when(self._end_threadsafe)
        try:
            self._phases.enter(Phase.RECOVER)
            await self._service.recover(self.fail)
            self._phases.enter(Phase.SERVE)
            listening = await self._service.serve()
        except KourouError as error:
            print_error(self._who, error)
            await self._stop()
            return _exit_code(error)
        except Exception as error:  # noqa: BLE001 - a bug: report it and end as a crash
            _log.critical("startup-failed: startup failed", exc_info=error)
            return self._report_failure(error)
        self._ready()
        self._report_ready(listening)
        await self._ended.wait()
        self._open_timer.cancel()
        if self._failure is None:
            await self._drain_and_stop()
        if self._failure is not None:  # which may also occur during the drain
            return self._report_failure(self._failure)
        return ExitCode.OK

    def fail(self, error: BaseException) -> None:
        """End now, because serving failed."""
        if self._failure is None:
            self._failure = error
        self._ended.set()

    def _end_threadsafe(self) -> None:
        self._loop.call_soon_threadsafe(self._ended.set)

    def _catch_signals(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return  # only the main thread handles signals; else the caller stops it
        for number in (signal.SIGTERM, signal.SIGINT):
            self._loop.add_signal_handler(number, self._on_signal, number)
        take_name(self._service.name)  # from now on it can be found by its process name and stopped

    def _on_signal(self, number: int) -> None:
        self._signals += 1
        if self._signals > 1:
            _log.warning(
                "signal-repeated: %(signal)s received again: exiting immediately",
                {"signal": signal.Signals(number).name},
            )
            leave(ExitCode.CRASHED)
        _log.info("drain-started: %(signal)s: draining", {"signal": signal.Signals(number).name})
        self._ended.set()

    def _warn_if_open(self, on_network: bool) -> None:
        """Log why everybody may do everything: when that changes, and on a network each minute."""
        before, self._open_because = self._open_because, self._service.open_because()
        if self._open_because and (on_network or self._open_because != before):
            _log.warning(
                "access-open: everybody who reaches this service may do everything: %(reason)s",
                {"reason": self._open_because},
            )
        self._open_timer = self._loop.call_later(OPEN_WARNING_S, self._warn_if_open, on_network)

    def _report_ready(self, listening: Mapping[str, str]) -> None:
        """Say where it listens, and whether everybody who reaches that may do everything there."""
        self._warn_if_open(any(_is_on_network(address) for address in listening.values()))
        if self._ready_file is not None:
            facts = {"service": self._service.name, "pid": os.getpid(), **listening}
            if self._open_because:
                facts[OPEN] = self._open_because
            temporary = self._ready_file.with_name(self._ready_file.name + ".tmp")
            temporary.write_text(json.dumps(facts) + "\n", encoding="utf-8")
            temporary.rename(self._ready_file)
        places = ", ".join(f"{name} {where}" for name, where in listening.items())
        sys.stdout.write(f"kourou {self._service.name} is ready: {places}\n")
        sys.stdout.flush()

    async def _drain_and_stop(self) -> None:
        self._phases.enter(Phase.DRAIN)
        try:
            async with asyncio.timeout(DRAIN_S_MAX):
                await self._service.drain()
        except TimeoutError:
            _log.warning(
                "drain-overdue: draining took more than %(limit_s).0f s: stopping anyway",
                {"limit_s": DRAIN_S_MAX},
            )
        except KourouError as error:
            self.fail(error)
            return
        await self._stop()

    async def _stop(self) -> None:
        self._phases.enter(Phase.STOP)
        try:
            async with asyncio.timeout(STOP_S_MAX):
                await self._service.stop()
        except TimeoutError as error:
            _log.error(
                "stop-overdue: stopping took more than %(limit_s).0f s", {"limit_s": STOP_S_MAX}
            )
            self.fail(error)
        except KourouError as error:
            self.fail(error)

    def _report_failure(self, error: BaseException) -> ExitCode:
        code = _exit_code(error)
        if code is ExitCode.CRASHED:
            print_error(self._who, f"stopped by a bug: {type(error).__name__}: {error}")
            return code
        print_error(self._who, error)
        return ExitCode.FAULTED  # not a usage error: it served before
