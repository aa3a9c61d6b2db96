"""Kafka as a system of the comparison: one node that is broker and controller (KRaft).

State: soft.
"""

from __future__ import annotations

import base64
import importlib.metadata
import importlib.util
import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path

from kourou.errors import Unavailable
from kourou.service.local_cluster import HOST
from kourou.service.processes import Children, free_port
from kourou_bench.driving import DriverOptions
from kourou_bench.jars import Jar, fetched, read_list
from kourou_bench.rocketmq import lacking, version_in
from kourou_bench.rows import Name, Work
from kourou_bench.systems import (
    PACKAGES_LINE,
    Processes,
    Running,
    python_driver,
    version_of,
    wait_for_port,
)

HEAP = ("-Xms1g", "-Xmx1g", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20")
"""The garbage collector of Kafka's start script, and the heap size of RocketMQ's broker."""

FLUSH = {
    "async": {"log.flush.interval.ms": "500", "log.flush.scheduler.interval.ms": "100"},
    "sync": {"log.flush.interval.messages": "1"},
}
"""Set, because Kafka by default leaves flushing to the kernel; the other systems promise more."""


class Kafka:
    """Kafka's server, and aiokafka."""

    name = Name.KAFKA

    def __init__(self, sources: Path, drivers: Path, cache: Path) -> None:
        self._jars: list[Jar] = read_list((sources / "kafka.jars").read_text(encoding="utf-8"))
        self._driver = drivers / "kafka_driver.py"
        self._cache = cache

    def missing(self) -> str:
        """What is missing: Java, Maven (if the jars are not cached), or the client's package."""
        lacks = lacking([self._jars], self._cache)
        if importlib.util.find_spec("aiokafka"):
            return lacks
        client = f"aiokafka is missing: {PACKAGES_LINE}"
        return f"{lacks}; {client}" if lacks else client

    def cannot(self, work: Work) -> str:
        """Kafka supports all workloads."""
        return ""

    def title(self) -> str:
        """Kafka and its version."""
        return f"Kafka {version_in(self._jars, 'kafka_2.13')}"

    def settings(self) -> Mapping[str, object]:
        """Settings that matter for the comparison, in particular flushing."""
        return {
            "java": version_of("java"),
            "mode": "KRaft, one node",
            "heap": " ".join(HEAP),
            "flush": "every 500 ms, or after each message",
            "client": f"aiokafka {importlib.metadata.version('aiokafka')}, acks=all, uvloop",
        }

    def address(self, port: int) -> str:
        """The server's address."""
        return f"{HOST}:{port}"

    def driver(self, options: DriverOptions) -> list[str]:
        """The driver in benchmarks/peers."""
        return python_driver(self._driver, options)

    @cached_property
    def _java(self) -> list[str]:
        return ["java", *HEAP, "-cp", f"{fetched(self._jars, self._cache)}/*"]

    @contextmanager
    def serve(self, folder: Path, port: int, flush: str) -> Iterator[Running]:
        """One server, on a folder formatted by Kafka's own tool."""
        folder.mkdir(parents=True, exist_ok=True)
        settings = folder / "server.properties"
        lines = properties(folder / "logs", port, free_port(), flush)
        settings.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
        _format([*self._java, "kafka.tools.StorageTool"], settings)
        with Children(folder) as children:
            command = [*self._java, "kafka.Kafka", str(settings)]
            server = children.start("kafka", command, says_ready=False)
            wait_for_port(server, port)
            yield Processes([server])


def properties(logs: Path, port: int, controller: int, flush: str) -> dict[str, str]:
    """The contents of the settings file."""
    return {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@{HOST}:{controller}",
        "listeners": f"PLAINTEXT://{HOST}:{port},CONTROLLER://{HOST}:{controller}",
        "advertised.listeners": f"PLAINTEXT://{HOST}:{port}",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": str(logs),
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "group.initial.rebalance.delay.ms": "0",
        **FLUSH[flush],
    }


def _format(tool: list[str], settings: Path) -> None:
    name = base64.urlsafe_b64encode(os.urandom(16)).decode().rstrip("=").replace("-", "0")
    done = subprocess.run(
        [*tool, "format", "-t", name, "-c", str(settings)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        lines = (done.stdout + done.stderr).strip().splitlines()
        raise Unavailable(f"Kafka's folder could not be formatted: {' | '.join(lines[-3:])}")
