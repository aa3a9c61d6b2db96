"""What the tests with foreign clients share: the servers, and one run of each client per server.

A client's program runs all its scenarios at once, as starting it costs more than most of them; the
tests of a scenario then look at its line. Only what was selected is run.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.interop import rows, servers

from kourou import __version__
from kourou.errors import Unavailable
from kourou.service.processes import Children
from kourou_bench.jars import fetched, have, read_list
from kourou_bench.rocketmq import NEEDED, compiled

SECONDS = 90
"""All scenarios of a client on one server; the slowest waits for what RocketMQ's client waits."""

GRACE_S = 15
LOCK_FILE = "package-lock.json"

BINARY_HEADERS = "-Drocketmq.serialize.type=ROCKETMQ"
JVM = (
    *("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData"),
    "-Drocketmq.client.logLevel=ERROR",
)
"""Starts soon and stays small; nothing here is measured."""

Lines = Mapping[str, Mapping[str, Any]]
RunClient = Callable[[str, str], Lines]
"""(client, server) → the line of each scenario that was selected."""


@pytest.fixture(scope="session")
def root() -> Path:
    """The checkout."""
    return Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def serving(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], str]]:
    """`serving("kourou")`: the address of that server's name server, started at first use."""
    started: dict[str, str] = {}
    how: dict[str, servers.Server] = {"kourou": servers.kourou, "rocketmq": servers.rocketmq(root)}
    with ExitStack() as stack:

        def address(name: str) -> str:
            if name not in started:
                folder = tmp_path_factory.mktemp(name)
                started[name] = stack.enter_context(how[name](folder))
            return started[name]

        yield address


@pytest.fixture(scope="session")
def class_path(root: Path) -> str:
    """RocketMQ's client and our programs, fetched and compiled at first use."""
    sources = sorted((Path(__file__).parent / "java").glob("*.java"))
    return _classes(root, "rocketmq-client-4.9.8.jars", sources)


@pytest.fixture(scope="session")
def mqadmin_5_classes(root: Path) -> str:
    """RocketMQ 5.3's mqadmin, and our program that runs its commands."""
    program = Path(__file__).parent / "java" / "MqadminLines.java"
    return _classes(root, "rocketmq-5.3.3.jars", [program])


def _classes(root: Path, listed: str, sources: Sequence[Path]) -> str:
    """The class path of jars that `kourou bench` lists, and of our programs."""
    jars = read_list((root / "benchmarks" / "java" / listed).read_text(encoding="utf-8"))
    cache = root / ".peers"
    lacking = [name for name in NEEDED if shutil.which(name) is None]
    if "mvn" in lacking and have(jars, cache):
        lacking.remove("mvn")
    if lacking:
        pytest.skip(f"needs another client: {'; '.join(NEEDED[name] for name in lacking)}")
    try:
        place = fetched(jars, cache)
    except Unavailable as error:
        pytest.skip(f"needs another client: {error}")
    return f"{compiled(sources, place, cache)}:{place}/*"


@pytest.fixture(scope="session")
def cpp_python(root: Path) -> str:
    """An interpreter with Apache's C++ client in a package, and nothing else."""
    wanted = Path(__file__).parent / "cpp" / "requirements.txt"
    place = root / ".interop" / f"cpp-{hashlib.sha256(wanted.read_bytes()).hexdigest()[:12]}"
    python = place / "bin" / "python"
    if not place.is_dir():
        fresh = place.with_suffix(".new")
        shutil.rmtree(fresh, ignore_errors=True)
        pip = (str(fresh / "bin" / "python"), "-m", "pip", "--quiet", "install")
        for command in (
            (sys.executable, "-m", "venv", str(fresh)),
            (*pip, "--require-hashes", "--only-binary", ":all:", "-r", str(wanted)),
        ):
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                last = (done.stdout + done.stderr).strip().splitlines()[-1:]
                pytest.skip(f"needs another client: the C++ one cannot be had: {last}")
        fresh.rename(place)
    return str(python)


@pytest.fixture(scope="session")
def node_modules(root: Path) -> Path:
    """The JavaScript client with all that it needs, as package-lock.json says."""
    lacking = [name for name in ("node", "npm") if shutil.which(name) is None]
    if lacking:
        pytest.skip(f"needs another client: {' and '.join(lacking)}: sudo apt install -y npm")
    wanted = [Path(__file__).parent / "node" / name for name in ("package.json", LOCK_FILE)]
    digest = hashlib.sha256(b"".join(file.read_bytes() for file in wanted)).hexdigest()
    place = root / ".interop" / f"node-{digest[:12]}"
    if not place.is_dir():
        fresh = place.with_suffix(".new")
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir(parents=True)
        for file in wanted:
            shutil.copy(file, fresh)
        done = subprocess.run(
            ("npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"),
            cwd=fresh,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            last = (done.stdout + done.stderr).strip().splitlines()[-1:]
            pytest.skip(f"needs another client: the JavaScript one cannot be had: {last}")
        fresh.rename(place)
    return place / "node_modules"


@pytest.fixture(scope="session")
def run_client(
    request: pytest.FixtureRequest,
    serving: Callable[[str], str],
    tmp_path_factory: pytest.TempPathFactory,
    root: Path,
) -> RunClient:
    """Runs a client's scenarios against a server, once, and writes down what came of all."""
    known: dict[tuple[str, str], Lines] = {}

    def lines(client: str, server: str) -> Lines:
        if (client, server) not in known:
            chosen = _selected(request, client, server)
            home = tmp_path_factory.mktemp(f"{client}-home")
            if client == "cpp":
                python = request.getfixturevalue("cpp_python")
                commands = [_cpp(python, serving(server), name) for name in chosen]
            elif client == "node":
                modules = request.getfixturevalue("node_modules")
                commands = [_node(modules, serving(server), chosen)]
            else:
                classes = request.getfixturevalue("class_path")
                commands = [_java(classes, client, serving(server), chosen, home)]
            known[client, server] = found = run_programs(commands, home)
            if request.config.getoption("--slow") and set(chosen) == set(rows.scenarios(client)):
                version = __version__ if server == "kourou" else servers.server_version(root)
                passed = {name: bool(line["ok"]) for name, line in found.items()}
                rows.write_down(client, server, version, passed)
        return known[client, server]

    return lines


@pytest.fixture
def run_java(class_path: str, tmp_path: Path) -> Callable[..., None]:
    """`run_java(address, "sync,push")`: these scenarios, which must come out well.

    `options` are the JVM's; `client` is another one: "java-binary" sends binary headers, "mqadmin"
    runs its scenarios.
    """

    def run(address: str, names: str, *options: str, client: str = "java") -> None:
        home = tmp_path / f"home-{client}-{names}-{len(options)}"
        java, *others = _java(class_path, client, address, names.split(","), home)
        command = [java, *options, *others]
        bad = {
            name: line["detail"]
            for name, line in run_programs([command], home).items()
            if not line["ok"]
        }
        assert not bad

    return run


def _java(classes: str, client: str, address: str, chosen: list[str], home: Path) -> list[str]:
    options = [BINARY_HEADERS] if client == "java-binary" else []
    program = "Mqadmin" if client == "mqadmin" else "Interop"
    return [
        *("java", *JVM, *options, f"-Duser.home={home}"),
        *(f"-Drocketmq.client.logRoot={home}", "-cp", classes, program),
        *(f"address={address}", f"scenarios={','.join(chosen)}"),
        *(f"mark={client.replace('-', '')}", "at_once=12", f"seconds={SECONDS}"),
    ]


def _cpp(python: str, address: str, scenario: str) -> list[str]:
    program = Path(__file__).parent / "cpp" / "scenarios.py"
    return [python, str(program), address, scenario, "cpp"]


def _node(modules: Path, address: str, chosen: list[str]) -> list[str]:
    program = Path(__file__).parent / "node" / "scenarios.js"
    return ["env", f"NODE_PATH={modules}", "node", str(program), address, ",".join(chosen), "node"]


def run_programs(commands: list[list[str]], home: Path) -> Lines:
    """Their JSON lines by scenario; the programs are gone afterwards, whatever they do."""
    environment = {**os.environ, "HOME": str(home)}  # where some write their logs
    found: dict[str, Mapping[str, Any]] = {}
    with Children(home) as children:
        running = [
            children.start(f"client-{number}", command, environment=environment, says_ready=False)
            for number, command in enumerate(commands)
        ]
        for child in running:
            code = child.wait_for_exit(SECONDS + GRACE_S)
            lines = child.log_path.read_text(encoding="utf-8").splitlines()
            told = [json.loads(line) for line in lines if line.startswith('{"')]
            assert told, f"{child.name} ended with {code} and said nothing: {child.log_tail()}"
            found.update((str(line["name"]), line) for line in told)
    return found


def _selected(request: pytest.FixtureRequest, client: str, server: str) -> list[str]:
    """The scenarios of the tests that this run will do for the client on the server."""
    wanted = set()
    for item in request.session.items:
        values = getattr(getattr(item, "callspec", None), "params", {})
        if (values.get("client"), values.get("server")) == (client, server):
            wanted.add(values["scenario"])
    return [name for name in rows.scenarios(client) if name in wanted]
