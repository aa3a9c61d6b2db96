"""RocketMQ as a system of the comparison: jars, Java, settings files.

Its servers listen on all interfaces, because RocketMQ 4.9 has no setting for that. Ports are free
ones, and the addresses that it registers are of the loopback interface.

State: soft; compiled classes are stored next to the jars, under the checksum of their sources.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from kourou.errors import ConfigError, Unavailable
from kourou.service.local_cluster import HOST
from kourou.service.processes import Child, Children, free_port
from kourou_bench.driving import DriverOptions
from kourou_bench.jars import Jar, fetched, have, read_list
from kourou_bench.rows import Name, Work
from kourou_bench.systems import (
    FLUSH_TYPES,
    Processes,
    Running,
    kourou_for_java,
    version_of,
    wait_for_port,
)

NEEDED = {
    "java": "Java is missing: sudo apt install -y openjdk-17-jdk-headless",
    "javac": "the Java compiler is missing: sudo apt install -y openjdk-17-jdk-headless",
    "mvn": "Maven, which fetches the jars, is missing: sudo apt install -y maven",
}
FAST_PORT_SHIFT = -2
"""The broker also listens at this distance from its port; that cannot be configured."""

BROKER_HEAP = ("-Xms1g", "-Xmx1g")
NAMESRV_HEAP = ("-Xms256m", "-Xmx256m")
CLIENT_HEAP = ("-Xms1g", "-Xmx1g")
JVM = (
    "-XX:+UseG1GC",
    # Options of RocketMQ's own start script for Java 9 and newer, required to unmap files.
    "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
)
TIMEOUTS = {"waitTimeMillsInSendQueue": "10000", "osPageCacheBusyTimeOutMills": "10000"}
"""Longer limits, because a rejected send would end the measurement."""

FEATURES = {"enablePropertyFilter": "true"}
"""SQL92 filters are off by default; the setting affects only such subscriptions."""

LOGBACK = """<configuration><appender name="out" class="ch.qos.logback.core.ConsoleAppender">
<encoder><pattern>%d %p %c - %m%n</pattern></encoder></appender>
<root level="ERROR"><appender-ref ref="out"/></root></configuration>
"""


@dataclass(frozen=True, slots=True)
class Release:
    """The jar lists of the servers, and of the client that the driver is compiled with."""

    name: Name
    servers: str
    client: str


RELEASES = {
    # Maven Central has only the libraries of 4.9.8: its client with the broker of the previous
    # version.
    Name.ROCKETMQ: Release(Name.ROCKETMQ, "rocketmq.jars", "rocketmq-client-4.9.8.jars"),
    Name.ROCKETMQ5: Release(Name.ROCKETMQ5, "rocketmq-5.3.3.jars", "rocketmq-5.3.3.jars"),
}


class RocketMq:
    """RocketMQ's name server, broker and Java client."""

    def __init__(self, sources: Path, cache: Path, name: Name = Name.ROCKETMQ) -> None:
        release = RELEASES[name]
        self.name = name
        self._sources = sources
        self._jars, self._client = (
            read_list((sources / each).read_text(encoding="utf-8"))
            for each in (release.servers, release.client)
        )
        self._cache = cache

    def missing(self) -> str:
        """What is missing: Java, its compiler, or Maven if the jars are not cached."""
        return lacking([self._jars, self._client], self._cache)

    def cannot(self, work: Work) -> str:
        """RocketMQ supports all workloads."""
        return ""

    def title(self) -> str:
        """RocketMQ and the version of its broker."""
        return f"RocketMQ {version_in(self._jars, 'rocketmq-broker')}"

    def settings(self) -> Mapping[str, object]:
        """Heap sizes and the settings that differ from the defaults."""
        return {
            "java": version_of("java"),
            "broker heap": " ".join(BROKER_HEAP),
            "name server heap": " ".join(NAMESRV_HEAP),
            "client heap": " ".join(CLIENT_HEAP),
            "collector": "G1",
            "transientStorePoolEnable": "false (its default)",
            **FEATURES,
            **TIMEOUTS,
            "client": f"rocketmq-client {version_in(self._client, 'rocketmq-client')}, defaults",
            "logs": "errors only",
        }

    def address(self, port: int) -> str:
        """The name server's address."""
        return f"{HOST}:{port}"

    @cached_property
    def class_path(self) -> str:
        """The servers' jars, fetched at first use."""
        return f"{fetched(self._jars, self._cache)}/*"

    @cached_property
    def client_class_path(self) -> str:
        """The client's jars and the Java driver, fetched and compiled at first use."""
        jars = fetched(self._client, self._cache)
        return f"{compiled(list(self._sources.glob('*.java')), jars, self._cache)}:{jars}/*"

    def driver(self, options: DriverOptions) -> list[str]:
        """The Java driver."""
        log = f"-Drocketmq.client.logRoot={self._cache / 'client-logs'}"
        java = ["java", *CLIENT_HEAP, *JVM, log, "-Drocketmq.client.logLevel=ERROR"]
        return [*java, "-cp", self.client_class_path, "RocketmqDriver", *options.as_arguments()]

    @contextmanager
    def serve(self, folder: Path, port: int, flush: str) -> Iterator[Running]:
        """A name server, and then a broker."""
        settings = {"flushDiskType": FLUSH_TYPES[flush], **FEATURES, **TIMEOUTS}
        with started(self.class_path, folder, port, settings) as servers:
            yield Processes(list(servers))


class JavaAtKourou(RocketMq):
    """RocketMQ's Java client, the Java driver, and Kourou's servers."""

    def __init__(self, sources: Path, cache: Path, name: Name = Name.ROCKETMQ) -> None:
        super().__init__(sources, cache, name)
        self.name = Name.KOUROU

    @contextmanager
    def serve(self, folder: Path, port: int, flush: str) -> Iterator[Running]:
        """Kourou's name server and broker, with the remoting protocol of RocketMQ's clients."""
        with kourou_for_java(folder, port, flush) as running:
            yield running


def version_in(jars: Sequence[Jar], artifact: str) -> str:
    """The version of a jar in a list; raises ConfigError if it is not listed."""
    versions = [jar.version for jar in jars if jar.artifact == artifact]
    if not versions:
        raise ConfigError(f"the list of jars has no {artifact}")
    return versions[0]


def lacking(lists: Sequence[list[Jar]], cache: Path) -> str:
    """What must be installed to fetch and run these jars; empty if nothing is missing."""
    wanted = [command for command in NEEDED if shutil.which(command) is None]
    if "mvn" in wanted and all(have(jars, cache) for jars in lists):
        wanted.remove("mvn")
    return "; ".join(NEEDED[command] for command in wanted)


@contextmanager
def started(
    class_path: str,
    folder: Path,
    namesrv_port: int,
    broker: Mapping[str, str],
    *,
    namesrv_address: str = "",
) -> Iterator[list[Child]]:
    """Start RocketMQ's name server and then a broker; both listen when the block begins.

    `broker` adds settings. With `namesrv_address` only the broker is started, and it registers
    there.
    """
    home = folder / "home"
    (home / "conf").mkdir(parents=True)
    for service in ("broker", "namesrv"):
        (home / "conf" / f"logback_{service}.xml").write_text(LOGBACK, encoding="utf-8")
    with Children(folder) as children:

        def start(name: str, heap: tuple[str, ...], kind: str, keys: Mapping[str, str]) -> Child:
            path = folder / f"{name}.conf"
            path.write_text(
                "".join(f"{key}={value}\n" for key, value in keys.items()), encoding="utf-8"
            )
            java = ["java", *heap, *JVM, f"-Duser.home={home}", "-cp", class_path]
            return children.start(
                name,
                [*java, kind, "-c", str(path)],
                environment={"ROCKETMQ_HOME": str(home)},
                says_ready=False,
            )

        servers: list[Child] = []
        if not namesrv_address:
            namesrv = {
                "listenPort": str(namesrv_port),
                "kvConfigPath": str(folder / "kvConfig.json"),
                "configStorePath": str(folder / "namesrv.properties"),
            }
            kind = "org.apache.rocketmq.namesrv.NamesrvStartup"
            servers.append(start("namesrv", NAMESRV_HEAP, kind, namesrv))
            wait_for_port(servers[-1], namesrv_port)
        listen_port = free_port(FAST_PORT_SHIFT)
        settings = {
            "listenPort": str(listen_port),
            "haListenPort": str(free_port()),
            "namesrvAddr": namesrv_address or f"{HOST}:{namesrv_port}",
            "brokerIP1": HOST,
            "brokerName": "broker-a",
            "brokerId": "0",
            "storePathRootDir": str(folder / "store"),
            "storePathCommitLog": str(folder / "store" / "commitlog"),
            "autoCreateTopicEnable": "true",
            **broker,
        }
        kind = "org.apache.rocketmq.broker.BrokerStartup"
        servers.append(start("broker", BROKER_HEAP, kind, settings))
        wait_for_port(servers[-1], int(settings["listenPort"]))
        yield servers


def compiled(sources: Sequence[Path], jars: Path, cache: Path) -> Path:
    """The folder with the classes of these sources, compiled against these jars if necessary.

    Raises Unavailable, with the compiler's output, if they do not compile.
    """
    digest = hashlib.sha256(jars.name.encode())
    for source in sorted(sources):
        digest.update(source.name.encode() + b"\0" + source.read_bytes())
    place = cache / f"classes-{digest.hexdigest()[:12]}"
    if not place.is_dir():
        scratch = place.with_suffix(".new")
        shutil.rmtree(scratch, ignore_errors=True)
        done = subprocess.run(
            [
                *("javac", "-nowarn", "-proc:none", "-encoding", "UTF-8"),
                *("-cp", f"{jars}/*", "-d", str(scratch), *map(str, sorted(sources))),
            ],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise Unavailable(f"our Java sources do not compile: {done.stderr}")
        scratch.rename(place)
    return place
