"""The Docker Engine that the container tests use.

An engine that answers on this machine is used as it is: it pulls the official images. Where none
answers, the tests start Debian's `dockerd` in a folder of their own. That engine has no registry,
so its base images are made here: Debian's Python, PostgreSQL and Prometheus, Jaeger (which is the
collector as well) from its Go module, and a stand-in for Grafana. In both cases Kourou's two images
are built by the Dockerfile as it is.

An engine of the tests' own needs root, the packages that `.ci/install --docker` installs, and Go.
"""

from __future__ import annotations

import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from kourou.service.processes import Child

IMAGES = Path(__file__).parent / "images"
DEBIAN = "bookworm"
PYTHON_IMAGE = "python:3.11.13-slim-bookworm"
POSTGRES_IMAGE = "postgres:17.5-bookworm"
PROMETHEUS_IMAGE = "prom/prometheus:v3.13.3"
COLLECTOR_IMAGE = "otel/opentelemetry-collector-contrib:0.150.1"
JAEGER_IMAGE = "jaegertracing/jaeger:2.19.0"
GRAFANA_IMAGE = "grafana/grafana:12.4.4"
RUNTIME_IMAGE = "kourou:0.1.0"
SPARK_IMAGE = "kourou-spark:0.1.0"

PROGRAMS = ("dockerd", "iptables", "mmdebstrap", "go")
DEBIANS_CLIENT = "/usr/bin/docker"
"""The package of `dockerd` has it, with BuildKit, which another client on PATH may lack."""

JAEGER_MODULE = "github.com/jaegertracing/jaeger"
JAEGER_VERSION = "v1.76.0"
"""The module's own number of a release 2.x: its tags of 2.x are not versions of the module."""

SEARCH_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"
INDEX_SETTINGS = ("index-url", "extra-index-url", "trusted-host")
"""Settings of pip on this machine without which a build would not reach the index."""

FORWARDING = Path("/proc/sys/net/ipv4/ip_forward")
NO_RULES = {
    "*filter": "*filter\n:INPUT ACCEPT\n:FORWARD ACCEPT\n:OUTPUT ACCEPT\nCOMMIT\n",
    "*nat": "*nat\n:PREROUTING ACCEPT\n:INPUT ACCEPT\n:OUTPUT ACCEPT\n:POSTROUTING ACCEPT\n"
    "COMMIT\n",
}
"""The two tables of the firewall that an engine writes to, as they are without any rule."""

START_S_MAX = 60.0
STOP_MS = 120_000
ERROR_LINES = 40


class NoEngine(RuntimeError):
    """There is no Docker Engine to use, and none can be started here."""


class DockerEngine:
    """One engine; `close` ends it if the tests started it. `environment` is for Compose."""

    def __init__(self) -> None:
        self.environment = {"DOCKER_BUILDKIT": "1"}
        self._client = "docker"
        self._folder: Path | None = None
        self._daemon: Child | None = None
        self._network_before = ("", "")

    @property
    def is_own(self) -> bool:
        """Did the tests start it?"""
        return self._folder is not None

    def start(self) -> None:
        """Find an engine that answers, or start one. NoEngine says what is missing."""
        if shutil.which(self._client) and self._answers():
            return
        if host := os.environ.get("DOCKER_HOST"):
            raise NoEngine(
                f"no Docker Engine answers at DOCKER_HOST={host}: start it, or unset DOCKER_HOST"
            )
        missing = [name for name in PROGRAMS if shutil.which(name) is None]
        if missing or os.geteuid() != 0:
            lacking = " and ".join([*missing, *(["root"] if os.geteuid() else [])])
            raise NoEngine(
                "no Docker Engine answers, and the tests cannot start one without "
                f"{lacking}: start an engine, or run `.ci/install --docker` as root "
                "(docs/testing.md#container-tests)"
            )
        # Not in pytest's folder: the path of a socket has at most 108 characters.
        self._folder = folder = Path(tempfile.mkdtemp(prefix="kourou-docker-"))
        self.environment["DOCKER_HOST"] = f"unix://{folder}/sock"
        self._client = DEBIANS_CLIENT
        rules = run(["iptables-save"])
        added = [table for name, table in NO_RULES.items() if name not in rules]
        self._network_before = ("".join([rules, *added]), FORWARDING.read_text("ascii"))
        self._daemon = Child(
            "dockerd",
            [
                *("setpriv", "--pdeathsig", "TERM", "dockerd", f"--data-root={folder}/data"),
                *(f"--exec-root={folder}/exec", f"--pidfile={folder}/pid", "--bridge=none"),
                f"--host=unix://{folder}/sock",
            ],
            folder,
            says_ready=False,
        )
        waiting = threading.Event()
        for _ in range(int(START_S_MAX / 0.1)):
            if self._answers():
                return
            if not self._daemon.running:
                break
            waiting.wait(0.1)
        raise NoEngine(f"dockerd does not answer: {self._daemon.log_tail(ERROR_LINES)}")

    def close(self) -> None:
        """End an engine of the tests' own, and undo what it changed on this machine."""
        if self._folder is None:
            return
        if self._daemon is not None and self._daemon.running:
            for identity in self.docker("ps", "--all", "--quiet", check=False).split():
                self.docker("rm", "--force", "--volumes", identity, check=False)
            self.docker("network", "prune", "--force", check=False)
            self._daemon.stop(STOP_MS)
        for process in started_in(self._folder):
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        for place in mounted_below(self._folder):
            run(["umount", place])
        rules, forwarding = self._network_before
        run(["iptables-restore"], given=rules)
        FORWARDING.write_text(forwarding, "ascii")
        shutil.rmtree(self._folder)

    def docker(self, *arguments: str, check: bool = True) -> str:
        """Run a command of Docker's; what it printed. RuntimeError with its error message."""
        return run([self._client, *arguments], self.environment, check=check)

    def _answers(self) -> bool:
        return bool(self.docker("version", "--format", "{{.Server.Version}}", check=False).strip())

    # -- images ---------------------------------------------------------------------------------

    def make_images(self, root: Path) -> None:
        """Build the images of Kourou, and on an engine of the tests' own those of others."""
        if self.is_own:
            self._make_base()
            for name, image in (
                ("postgres", POSTGRES_IMAGE),
                ("prometheus", PROMETHEUS_IMAGE),
                ("grafana", GRAFANA_IMAGE),
            ):
                self._build(IMAGES / name, image)
            self._build(jaeger(), JAEGER_IMAGE, f"--file={IMAGES}/jaeger/Dockerfile")
            self.docker("tag", JAEGER_IMAGE, COLLECTOR_IMAGE)
        self._build(root, RUNTIME_IMAGE, "--target=runtime")
        self._build(root, SPARK_IMAGE, "--target=spark")

    def _make_base(self) -> None:
        """Debian's Python as the base image; pip in it reaches the index as pip here does."""
        assert self._folder is not None
        tar = self._folder / "base.tar"
        certificates = os.environ.get("SSL_CERT_FILE", CERTIFICATES)
        where = [line] if (line := debian_source()) else []
        run(
            [
                *("mmdebstrap", "--quiet", "--mode=root", "--variant=minbase"),
                "--include=python3,python3-venv,ca-certificates",
                f"--customize-hook=upload {certificates} {CERTIFICATES}",
                *(DEBIAN, str(tar), *where),
            ],
            {"TMPDIR": str(self._folder)},
        )
        settings = {"PATH": SEARCH_PATH, "PIP_CERT": CERTIFICATES} | index_settings()
        changes = [f"--change=ENV {name}={value}" for name, value in settings.items()]
        self.docker("import", *changes, str(tar), PYTHON_IMAGE)
        tar.unlink()

    def _build(self, context: Path, image: str, *options: str) -> None:
        self.docker("build", "--network=host", f"--tag={image}", *options, str(context))


def jaeger() -> Path:
    """The folder with the program `jaeger`, which is built once on a machine and then kept."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = cache / "kourou" / f"jaeger-{JAEGER_VERSION}-{platform.machine()}"
    program = folder / "jaeger"
    if not program.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as module:
            package = f"{JAEGER_MODULE}/cmd/jaeger"
            environment = {"GOFLAGS": "-mod=mod", "CGO_ENABLED": "0", "PWD": module}
            (Path(module) / "go.mod").write_text("module jaeger.build\n", encoding="ascii")
            go = ("nice", "go", "-C", module)
            run([*go, "get", f"{package}@{JAEGER_VERSION}"], environment)
            run([*go, "build", "-trimpath", "-ldflags=-s -w", "-o=jaeger", package], environment)
            (Path(module) / "jaeger").rename(program)
    return folder


def run(
    command: Sequence[str],
    environment: dict[str, str] | None = None,
    *,
    given: str = "",
    check: bool = True,
) -> str:
    """Run a program to its end; its output. RuntimeError with the end of its error message."""
    done = subprocess.run(
        command,
        env=os.environ | (environment or {}),
        input=given,
        capture_output=True,
        text=True,
        check=False,
    )
    if check and done.returncode:
        lines = (done.stdout + done.stderr).splitlines()[-ERROR_LINES:]
        raise RuntimeError(
            "\n".join([f"{' '.join(command)} ended with {done.returncode}:", *lines])
        )
    return done.stdout


def index_settings() -> dict[str, str]:
    """How pip on this machine finds its index, as environment variables."""
    found = {}
    for name in INDEX_SETTINGS:
        value = os.environ.get(f"PIP_{name.upper().replace('-', '_')}") or run(
            [sys.executable, "-m", "pip", "config", "get", f"global.{name}"], check=False
        )
        if value.strip():
            found[f"PIP_{name.upper().replace('-', '_')}"] = value.strip()
    return found


def mounted_below(folder: Path) -> list[str]:
    """What is mounted there, the innermost first."""
    lines = Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines()
    places = [line.split()[1] for line in lines]
    return sorted((place for place in places if place.startswith(f"{folder}/")), reverse=True)


def started_in(folder: Path) -> list[int]:
    """Processes whose command line names that folder: containerd's, if dockerd left one."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # it has ended in the meantime
            if str(folder).encode() in entry.read_bytes():
                found.append(int(entry.parent.name))
    return found


def debian_source() -> str | None:
    """The line by which this machine gets that release, if it gets it at all."""
    form = "$(REPO_URI) $(RELEASE) $(COMPONENT)"
    found = run(["apt-get", "indextargets", "--format", form, "Created-By: Packages"])
    for line in found.splitlines():
        address, release, component = line.split()
        if (release, component) == (DEBIAN, "main"):
            return f"deb {address} {release} {component}"
    return None
