"""A container engine for Compose, from Debian packages, on a machine without Docker or a registry.

Lives here: podman with all its state in one folder, the base images it cannot pull, and the health
checks that a machine without systemd never runs.

    apt-get install --no-install-recommends \
        podman runc netavark aardvark-dns iptables catatonit mmdebstrap

What stands in for images of a registry: `python:3.11.13-slim-bookworm` is Debian's own Python 3.11
of the same release, `postgres:17.5-bookworm` Debian's PostgreSQL 15 with an entry point that
understands the variables which docker-compose.yml uses, Prometheus an older one; the collector,
Grafana and Jaeger are a program that answers and no more. Our images are built from our Dockerfile
as it is.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

HERE = Path(__file__).parent
DEBIAN = "bookworm"
PYTHON_IMAGE = "docker.io/library/python:3.11.13-slim-bookworm"
POSTGRES_IMAGE = "docker.io/library/postgres:17.5-bookworm"
WATCHING_IMAGES = (
    "docker.io/prom/prometheus:v3.13.3",
    "docker.io/otel/opentelemetry-collector-contrib:0.150.1",
    "docker.io/grafana/grafana:12.4.4",
    "docker.io/jaegertracing/jaeger:2.19.0",
)
"""One stand-in for all; it finds out for whom by what it is told."""
RUNTIME_IMAGE = "docker.io/library/kourou:0.1.0"
SPARK_IMAGE = "docker.io/library/kourou-spark:0.1.0"
PROGRAMS = ("podman", "runc", "iptables", "catatonit", "mmdebstrap")
CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"
START_S_MAX = 30.0
HEALTH_PERIOD_S = 1.0

SETTINGS = """\
[containers]
# What a confined machine can give; a container that asks for more would not start.
default_ulimits = ["nofile=4096:4096", "nproc=4096:4096"]

[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
runtime = "runc"
init_path = "{init}"
tmp_dir = "{folder}/libpod"

[network]
network_backend = "netavark"
network_config_dir = "{folder}/networks"
"""


class PodmanEngine:
    """One engine. Needs root. `environment` is what Compose wants to find it."""

    def __init__(self) -> None:
        missing = [name for name in PROGRAMS if shutil.which(name) is None]
        if missing or os.geteuid() != 0:
            raise RuntimeError(
                f"the containers' test needs root and {' '.join(missing or PROGRAMS)}"
            )
        # Not below pytest's folder: a socket's path has at most 108 characters.
        self.folder = Path(tempfile.mkdtemp(prefix="kourou-podman-"))
        for name in ("libpod", "networks", "tmp"):
            (self.folder / name).mkdir()
        settings = self.folder / "containers.conf"
        settings.write_text(
            SETTINGS.format(folder=self.folder, init=shutil.which("catatonit")), encoding="utf-8"
        )
        self._own = {"CONTAINERS_CONF": str(settings), "TMPDIR": str(self.folder / "tmp")}
        self._socket = self.folder / "podman.sock"
        self._service: subprocess.Popen[bytes] | None = None
        self._stopping = threading.Event()
        self._health = threading.Thread(target=self._check_health, name="health", daemon=True)

    # -- its life -----------------------------------------------------------------------------

    def start(self) -> None:
        """Serve Docker's interface, and run health checks."""
        command = self._command("system", "service", "--time=0", f"unix://{self._socket}")
        with (self.folder / "service.log").open("wb") as log:
            self._service = subprocess.Popen(
                command, cwd=self.folder, env=os.environ | self._own, stdout=log, stderr=log
            )
        waited = threading.Event()
        for _ in range(int(START_S_MAX / 0.1)):
            if self._socket.exists():
                break
            waited.wait(0.1)
        else:
            raise RuntimeError(f"podman does not serve: {self._log()}")
        self._health.start()

    def close(self) -> None:
        """End everything that runs in it and delete its folder."""
        self._stopping.set()
        if self._health.is_alive():
            self._health.join()
        self.podman("rm", "--all", "--force", "--time=0", check=False)
        self.podman("network", "prune", "--force", check=False)
        if self._service is not None:
            self._service.terminate()
            self._service.wait()
        # Those that watched an `exec` stay for five minutes and would then make the folder anew.
        for process in started_for(self.folder):
            os.kill(process, signal.SIGKILL)
        for place in mounted_below(self.folder):
            run(["umount", place], {})
        shutil.rmtree(self.folder)

    @property
    def environment(self) -> dict[str, str]:
        """For Compose, besides what is set anyway."""
        return {"DOCKER_HOST": f"unix://{self._socket}"}

    # -- images -------------------------------------------------------------------------------

    def make_images(self, root: Path) -> None:
        """The stand-ins, and both of our images from the Dockerfile in `root`."""
        tar = self.folder / "debian.tar"
        packages = "python3,python3-venv,ca-certificates"
        where = [line] if (line := debian_source()) else []
        run(
            [
                *("mmdebstrap", "--quiet", "--mode=root", "--variant=minbase"),
                *(f"--include={packages}", DEBIAN, str(tar), *where),
            ],
            self._own,
        )
        self.podman("import", "--quiet", str(tar), PYTHON_IMAGE)
        tar.unlink()
        self.build(HERE / "postgres-stand-in", POSTGRES_IMAGE)
        first, *others = WATCHING_IMAGES
        self.build(HERE / "watching-stand-in", first)
        for image in others:
            self.podman("tag", first, image)
        self.build(root, RUNTIME_IMAGE, "--target=runtime")
        self.build(root, SPARK_IMAGE, "--target=spark")

    def build(self, context: Path, image: str, *options: str) -> None:
        """Build a folder's Dockerfile; steps reach the network as this machine does."""
        certificates = os.environ.get("SSL_CERT_FILE", CERTIFICATES)
        self.podman(
            *("build", "--isolation=chroot", "--network=host", "--pull=never", "--tag", image),
            *("--volume", f"{certificates}:{CERTIFICATES}:ro"),
            *options,
            str(context),
        )

    def offer_profile(self, profile: Path) -> str:
        """What a compose file must call a seccomp profile so that Compose and podman agree on it.

        Compose sends the JSON of the file that is named, as Docker wants it; podman 4.3 takes what
        it is sent for the name of a file. A number is both: a file that holds it, which Compose
        reads, and the name of another one, where this engine runs.
        """
        number = 1 + len(list(self.folder.glob("[0-9]")))
        shutil.copyfile(profile, self.folder / str(number))
        named = self.folder / f"seccomp-{number}.json"
        named.write_text(str(number), encoding="ascii")
        return str(named)

    # -- podman -------------------------------------------------------------------------------

    def podman(self, *arguments: str, check: bool = True) -> str:
        """Run podman; what it printed. RuntimeError with what it complained of."""
        return run(self._command(*arguments), self._own, check=check)

    def _command(self, *arguments: str) -> list[str]:
        root, run_root = self.folder / "root", self.folder / "run"
        return ["podman", "--root", str(root), "--runroot", str(run_root), *arguments]

    def _check_health(self) -> None:
        """Podman lets systemd's timers do this; where there is none, nobody would."""
        while not self._stopping.wait(HEALTH_PERIOD_S):
            for container in self.podman("ps", "--quiet", check=False).split():
                self.podman("healthcheck", "run", container, check=False)

    def _log(self) -> str:
        return (self.folder / "service.log").read_text(encoding="utf-8", errors="replace")


def run(command: Sequence[str], environment: dict[str, str], *, check: bool = True) -> str:
    """Run a program to its end; its output. RuntimeError with the end of what it said."""
    done = subprocess.run(
        command,
        env=os.environ | environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if check and done.returncode:
        said = "\n".join((done.stdout + done.stderr).splitlines()[-40:])
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}:\n{said}")
    return done.stdout


def mounted_below(folder: Path) -> list[str]:
    """What is mounted there, the innermost first."""
    lines = Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines()
    places = [line.split()[1] for line in lines]
    return sorted((place for place in places if place.startswith(f"{folder}/")), reverse=True)


def started_for(folder: Path) -> list[int]:
    """Processes whose command line names that folder, which nobody else knows."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # it has ended meanwhile
            if str(folder).encode() in entry.read_bytes():
                found.append(int(entry.parent.name))
    return found


def debian_source() -> str | None:
    """The line by which this machine gets that release, if it gets it at all."""
    form = "$(REPO_URI) $(RELEASE) $(COMPONENT)"
    found = run(["apt-get", "indextargets", "--format", form, "Created-By: Packages"], {})
    for line in found.splitlines():
        address, release, component = line.split()
        if (release, component) == (DEBIAN, "main"):
            return f"deb {address} {release} {component}"
    return None
