"""A PostgreSQL server for a test: it can be frozen, killed and restarted.

    with PostgresServer() as server:
        store = EventStore.open(server.new_database())

It has no port: its socket and its files are in a folder that only its user may enter. Because root
cannot run PostgreSQL, root gives the folder to another user, and the server runs as that user.

State: soft.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import select
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Self

from kourou.errors import TimedOut, Unavailable
from kourou.service.processes import Child

MISSING = "no programs of it in /usr/lib/postgresql (apt-get install postgresql)"
"""The reason why no server is available, and the remedy."""

PROGRAMS = Path("/usr/lib/postgresql")
ROLE = "kourou"
USERS = ("postgres", "nobody")
PROBE_TIMEOUT_S = 20
END_TIMEOUT_S = 20
PROBES_MAX = 2_000
"""A probe takes 10 ms or more."""

_SETTINGS = {
    "listen_addresses": "",
    # Data must survive its processes, but not a crash of the machine.
    "fsync": "off",
    "shared_buffers": "16MB",
    "max_connections": "60",
    "autovacuum": "off",
}


def find_programs() -> Path | None:
    """The folder with the programs of the newest installed PostgreSQL; None if there is none."""
    found = [path.parent for path in PROGRAMS.glob("*/bin/initdb")]
    return max(found, key=lambda path: _version(path.parent.name), default=None)


class PostgresServer:
    """A running server; leaving the `with` block stops it and deletes all its files."""

    def __init__(self) -> None:
        """Create a cluster and start it; raises Unavailable (`MISSING`) without the programs."""
        programs = find_programs()
        if programs is None:
            raise Unavailable(MISSING)
        self._programs = programs
        self._user = _unprivileged() if os.geteuid() == 0 else None
        # Not in a test's own folder, because a socket's path has at most 107 bytes.
        self.folder = Path(tempfile.mkdtemp(prefix="kourou-pg-"))
        self._numbers = count(1)
        self._child: Child | None = None
        try:
            if self._user is not None:
                os.chown(self.folder, self._user.pw_uid, self._user.pw_gid)
            self._run("initdb", "-D", str(self._data), "-U", ROLE, "-A", "trust", "-E", "UTF8",
                      "--no-locale", "--no-sync")  # fmt: skip
            self._start()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def new_database(self, *options: str) -> str:
        """The URL of a new, empty database; `options` are those of CREATE DATABASE."""
        name = f"test_{next(self._numbers)}"
        self.execute(" ".join((f"CREATE DATABASE {name}", *options)))
        return self.url(name)

    def url(self, database: str = "postgres") -> str:
        """The URL of a database, for an event store."""
        return f"postgresql://{ROLE}@/{database}?host={self.folder}"

    def execute(self, statement: str, database: str = "postgres") -> str:
        """The output of a statement, with columns separated by `|`."""
        return self._run("psql", *self._reached(), "-d", database, "-XAtqc", statement).strip()

    # -- faults -------------------------------------------------------------------------------

    @contextlib.contextmanager
    def gone(self) -> Iterator[None]:
        """Kill all its processes at the start of the block, and restart it at the end."""
        self._kill()
        try:
            yield
        finally:
            self._start()

    @contextlib.contextmanager
    def frozen(self) -> Iterator[None]:
        """During the block it accepts connections but does not reply, as behind a dead network."""
        assert self._child is not None
        first = self._child.pid
        _signal(first, signal.SIGSTOP)
        os.waitid(os.P_PID, first, os.WSTOPPED | os.WNOWAIT)  # now it cannot start processes
        for process in _children(first):
            _signal(process, signal.SIGSTOP)
        try:
            yield
        finally:
            self._thaw()

    def close(self) -> None:
        """Stop the server and delete its folder."""
        self._thaw()
        child, self._child = self._child, None
        if child is not None:
            child.signal(signal.SIGQUIT)
            if child.wait_for_exit(END_TIMEOUT_S) is None:
                child.kill()
        shutil.rmtree(self.folder)

    # -- processes ----------------------------------------------------------------------------

    @property
    def _data(self) -> Path:
        return self.folder / "data"

    def _start(self) -> None:
        """Start the server and wait until it accepts connections."""
        options = {**_SETTINGS, "unix_socket_directories": str(self.folder)}
        settings = [part for name, value in options.items() for part in ("-c", f"{name}={value}")]
        command = (str(self._programs / "postgres"), "-D", str(self._data), *settings)
        self._child = Child("postgres", self._as_user(command), self.folder, says_ready=False)
        for _ in range(PROBES_MAX):
            probe = [str(self._programs / "pg_isready"), "-q", *self._reached()]
            if subprocess.run(probe, check=False, timeout=PROBE_TIMEOUT_S).returncode == 0:
                return
            if not self._child.running:
                raise Unavailable(f"PostgreSQL did not start: {self._child.log_tail()}")
        raise TimedOut(f"PostgreSQL does not answer: {self._child.log_tail()}")

    def _kill(self) -> None:
        child, self._child = self._child, None
        if child is None:
            return
        # A new server requires that all old processes have ended; they are not children of this
        # one.
        with contextlib.ExitStack() as opened:
            ends = [end for process in _children(child.pid) if (end := _pidfd(process)) is not None]
            for end in ends:
                opened.callback(os.close, end)
            child.kill()
            for end in ends:
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(end, signal.SIGKILL)
                if not select.select([end], [], [], END_TIMEOUT_S)[0]:
                    raise TimedOut("a process of PostgreSQL does not end")

    def _reached(self) -> tuple[str, ...]:
        return ("-h", str(self.folder), "-U", ROLE)

    def _thaw(self) -> None:
        if self._child is not None:
            for process in (*_children(self._child.pid), self._child.pid):
                _signal(process, signal.SIGCONT)

    def _as_user(self, command: Sequence[str]) -> Sequence[str]:
        if self._user is None:
            return command
        identity = (f"--reuid={self._user.pw_uid}", f"--regid={self._user.pw_gid}")
        return ("setpriv", *identity, "--clear-groups", "--pdeathsig", "KILL", "--", *command)

    def _run(self, program: str, *arguments: str) -> str:
        done = subprocess.run(
            self._as_user((str(self._programs / program), *arguments)),
            cwd=self.folder,
            env=_bare_environment(),
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise Unavailable(f"{program} failed: {done.stderr.strip()}")
        return done.stdout


def _unprivileged() -> pwd.struct_passwd:
    known = {entry.pw_name: entry for entry in pwd.getpwall()}
    return next(known[name] for name in USERS if name in known)


def _bare_environment() -> Mapping[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("PG")}


def _children(process: int) -> list[int]:
    """The child processes of a process, found by their parent's ID.

    /proc/…/children is not used: it is incomplete while another child ends (proc(5)).
    """
    found: list[int] = []
    for listed in Path("/proc").iterdir():
        if not listed.name.isdigit():
            continue
        try:
            after_name = (listed / "stat").read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue  # the process has just ended
        if int(after_name[1]) == process:
            found.append(int(listed.name))
    return found


def _pidfd(process: int) -> int | None:
    """A pidfd; None if the process has ended, as a backend does with its connection."""
    try:
        return os.pidfd_open(process)
    except ProcessLookupError:
        return None


def _signal(process: int, number: signal.Signals) -> None:
    try:
        os.kill(process, number)
    except ProcessLookupError:
        return  # the process has just ended


def _version(name: str) -> tuple[int, ...]:
    return tuple(int(part) for part in name.split(".") if part.isdigit())
