"""The suite of docker-compose.yml as it runs on an engine: what its tests ask and look at.

Files of the lake are read in one more container, with the volume mounted read-only: an engine may
keep its volumes where this machine cannot read them.
"""

from __future__ import annotations

import base64
import json
import os
import random
import re
import socket
import subprocess
import sys
import threading
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from tests.containers.docker_engine import SPARK_IMAGE, DockerEngine

from kourou import ConsumeFromWhere, ConsumerSettings
from kourou.model.names import is_system_topic
from kourou.sync import Client

PROJECT = "kourou-test"
COMPOSE_FILE = Path(__file__).parents[2] / "docker-compose.yml"
PORTS = tuple(sorted(set(re.findall(r"\$\{(KOUROU_\w*PORT):-", COMPOSE_FILE.read_text("utf-8")))))
"""Every variable that says where something is published."""

FILTER_SERVERS = ("filter-server", "filter-server-2", "filter-server-b")
PROFILE = "deploy/seccomp/filter-server.json"
BROKERS = ("broker", "broker-b")
REPLICAS = ("ha-replica", "ha-replica-b")
OURS = ("namesrv", *BROKERS, *REPLICAS, *FILTER_SERVERS, "spark-etl", "console")
WATCHING = ("collector", "jaeger", "prometheus", "grafana")
RAFT = ("raft-n0", "raft-n1", "raft-n2")
SPARK_CLUSTER = ("spark-master", "spark-worker", "spark-worker-2")
START_S = "600"
"""Java and Spark start, on a machine with much else to do."""

WAIT_S = 400.0
LOOK_S = 0.5
LAKE_LOOK_S = 3.0
"""Each look at the lake starts a container, whose work Spark would have to wait for."""

PAGE_S = 60
ADMIN, ADMIN_SECRET = "admin", "KOUROU_TEST_ADMIN_SECRET"
"""Who signs in at the console, and the environment variable with the secret."""

CRASH = "kill -9 -1"
"""As a user of a container: SIGKILL to every process of that user in it."""

READ_LAKE = """
import json, sys
from pathlib import Path
import pyarrow.parquet
from kourou_spark_etl.lake_files import lake_paths
topic = sys.argv[1]
values = [
    value.decode()
    for path in lake_paths(Path("/var/lib/kourou/spark-etl/lake/lake"))
    if f"/topic={topic}/" in str(path)
    for value in pyarrow.parquet.ParquetFile(path).read(["value"])["value"].to_pylist()
]
print(json.dumps(sorted(values)))
"""
COUNT_LAKE = """
import json, re
from collections import Counter
from pathlib import Path
import pyarrow.parquet
from kourou_spark_etl.lake_files import lake_paths
rows = Counter()
for path in lake_paths(Path("/var/lib/kourou/spark-etl/lake/lake")):
    topic = re.search("/topic=([^/]*)/", str(path))[1]
    rows[topic] += pyarrow.parquet.ParquetFile(path).metadata.num_rows
print(json.dumps(rows))
"""
READ_CHECKPOINT = """
import json, sys
from pathlib import Path
folder = Path("/var/lib/kourou/spark-etl/checkpoints") / sys.argv[1] / "offsets"
batches = {int(path.name): path.read_text() for path in folder.iterdir() if path.name.isdecimal()}
print(json.dumps([batches[number] for number in sorted(batches)]))
"""
READ_EVENTS = """
from pathlib import Path
for path in sorted(Path("/var/lib/kourou/spark-etl").glob("app-*")):
    print(path.read_text(), end="")
"""

Up = Callable[..., str]
Found = TypeVar("Found")


def until(what: str, look: Callable[[], Found | None], every_s: float = LOOK_S) -> Found:
    """What `look` finds at last; an AssertionError says what it was waiting for."""
    waiting = threading.Event()
    for _ in range(int(WAIT_S / every_s)):
        found = look()
        if found:
            return found
        waiting.wait(every_s)
    raise AssertionError(f"{what}: not within {WAIT_S:g} s")


def kourou(
    ports: dict[str, str], *arguments: str, given: str = "", may_fail: bool = False
) -> list[str]:
    """Our command line on this machine, told only the address that is published.

    With `may_fail` what it printed counts, whatever it says of it. Its keys are in this process's
    environment, as docs/containers.md has them exported.
    """
    done = subprocess.run(
        [sys.executable, "-m", "kourou.cli", *arguments],
        env=os.environ | {"NAMESRV_ADDR": address(ports)},
        input=given,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert may_fail or done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def address(ports: dict[str, str]) -> str:
    """What a client on this machine is given."""
    return f"127.0.0.1:{ports['KOUROU_NAMESRV_PORT']}"


def states(up: Up) -> dict[str, tuple[str, int]]:
    """Service -> its state and exit code."""
    view = up("--profile", "*", "ps", "--all", "--format", "json")
    rows = [json.loads(line) for line in view.splitlines()]
    return {row["Service"]: (row["State"], row["ExitCode"]) for row in rows}


def all_healthy(up: Up) -> bool:
    """Does no running service say that it is starting, or unhealthy?"""
    view = up("--profile", "*", "ps", "--format", "json")
    health = {json.loads(line)["Health"] for line in view.splitlines()}
    return health <= {"", "healthy"}


def free_ports() -> dict[str, str]:
    """Free ports of this machine, by the variables that the compose files read.

    Below those that the system gives to connections, one of which could take one in the meantime.
    """
    found: dict[str, str] = {}
    for port in random.sample(range(12_000, 19_000), 4 * len(PORTS)):
        if len(found) == len(PORTS):
            break
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            found[PORTS[len(found)]] = str(port)
    assert len(found) == len(PORTS)
    return found


def consumed(ports: dict[str, str], topic: str, group: str, count: int) -> list[str]:
    """The bodies of so many messages, each acknowledged by a consumer group on this machine."""
    settings = ConsumerSettings(
        consumer_group=group, consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    )
    bodies = []
    with (
        Client(address(ports)) as client,
        client.subscribe(topic, settings=settings) as messages,
    ):
        for _, message in zip(range(count), messages, strict=False):
            bodies.append(message.body.decode())
            message.ack()
    return sorted(bodies)


def to_console(ports: dict[str, str], path: str, body: str | None = None) -> urllib.request.Request:
    """A request of the administrator to the console; the small suite has no users."""
    secret = os.environ.get(ADMIN_SECRET)
    proof = base64.b64encode(f"{ADMIN}:{secret}".encode()).decode()
    return urllib.request.Request(
        f"http://127.0.0.1:{ports['KOUROU_CONSOLE_PORT']}{path}",
        data=None if body is None else body.encode(),
        headers={} if secret is None else {"Authorization": f"Basic {proof}"},
    )


def sent_by_http(ports: dict[str, str], body: str, topic: str = "by-http") -> None:
    """Send through the gateway, which must confirm it."""
    question = to_console(ports, f"/v1/topics/{topic}/messages", body)
    with urllib.request.urlopen(question, timeout=PAGE_S) as answer:
        assert answer.status in (200, 201)


def tailed(ports: dict[str, str], topic: str, count: int) -> list[str]:
    """The bodies of the first messages of a topic, as this machine reads them."""
    lines = kourou(ports, "tail", topic, "--first", "--json", "--count", str(count))
    return bodies(lines)


def stored(ports: dict[str, str]) -> dict[str, int]:
    """The number of messages of each topic of users at the two brokers; empty ones left out."""
    with Client(address(ports)) as client:
        topics = client.admin.topics
        counts = {
            name: sum(queue.max_offset - queue.min_offset for queue in topics.stats(name).values())
            for name in topics.list()
            if not is_system_topic(name)
        }
    return {name: count for name, count in counts.items() if count}


def bodies(lines: list[str]) -> list[str]:
    """The bodies in what `kourou tail --json` printed."""
    return sorted(json.loads(line)["body"] for line in lines)


class Pipeline:
    """The service spark-etl from outside: its pages, its files, its container."""

    def __init__(self, engine: DockerEngine, up: Up, ports: dict[str, str]) -> None:
        self._engine = engine
        self._up = up
        self._page = f"http://127.0.0.1:{ports['KOUROU_SPARK_ADMIN_PORT']}"

    # -- pages --------------------------------------------------------------------------------

    def table(self, name: str, **question: str | int) -> list[dict[str, Any]]:
        """Rows of the read model, as this machine gets them over HTTP; none while it is away."""
        asked = urllib.parse.urlencode(question)
        url = f"{self._page}/tables/{name}?{asked}"
        try:
            with urllib.request.urlopen(url, timeout=PAGE_S) as answer:
                return list(json.load(answer)["rows"])
        except OSError:  # it has been killed, or starts; who waits asks again
            return []

    def letters(self, group: str) -> int:
        """The dead letters of a group, as the read model has them."""
        return sum(int(row["letters"]) for row in self.table("dead_letters", consumer_group=group))

    def batches(self, query: str) -> list[tuple[str, int, int]]:
        """Checkpoint, number and rows of each batch of a query, in their order."""
        rows = self.table("etl_batch", query=query, order="batch_id", limit=1_000)
        return [(row["query_id"], row["batch_id"], row["rows_written"]) for row in rows]

    # -- files --------------------------------------------------------------------------------

    def bodies(self, topic: str) -> list[str]:
        """The bodies of all rows of a topic in the lake; one that is there twice, twice."""
        return list(json.loads(self._inside(READ_LAKE, topic)))

    def rows(self) -> dict[str, int]:
        """The number of rows of each topic in the lake."""
        return dict(json.loads(self._inside(COUNT_LAKE)))

    def batches_of_checkpoint(self, query: str) -> list[str]:
        """The offsets of each batch that its checkpoint has, in their order."""
        return list(json.loads(self._inside(READ_CHECKPOINT, query)))

    def events(self) -> Iterator[dict[str, Any]]:
        """What Spark logs of applications with an event log; its last line may be incomplete."""
        for line in self._inside(READ_EVENTS).splitlines():
            with suppress(json.JSONDecodeError):
                yield json.loads(line)

    def _inside(self, program: str, *arguments: str) -> str:
        """What a Python program prints that sees the volume `spark-data`, and cannot change it."""
        return self._engine.docker(
            *("run", "--rm", "--network=none", "--entrypoint=python3"),
            f"--volume={PROJECT}_spark-data:/var/lib/kourou:ro",
            *(SPARK_IMAGE, "-c", program, *arguments),
        )

    def wait_for_rows(self, topic: str, expected: list[str]) -> None:
        """Until so many rows are there; then they are those, none missing and none twice."""
        until(
            f"{len(expected)} rows of {topic} in the lake",
            lambda: len(self.bodies(topic)) >= len(expected),
            LAKE_LOOK_S,
        )
        assert self.bodies(topic) == sorted(expected)

    # -- its container ------------------------------------------------------------------------

    @property
    def container(self) -> dict[str, Any]:
        """What the engine says of it."""
        return inspected(self._engine, self._up, "spark-etl")

    def kill(self) -> None:
        """SIGKILL to everything in it, unknown to the engine; until it runs again."""
        crash(self._engine, self._up, "spark-etl")


def inspected(engine: DockerEngine, up: Up, service: str) -> dict[str, Any]:
    """What the engine says of the container of a service."""
    [identity] = up("ps", "--all", "--quiet", service).split()
    return dict(json.loads(engine.docker("inspect", identity))[0])


def crash(engine: DockerEngine, up: Up, service: str) -> None:
    """Kill all processes in a container from within; until the engine has started it again."""
    before = inspected(engine, up, service)
    engine.docker("exec", before["Id"], "sh", "-c", CRASH, check=False)

    def started_again() -> bool:
        now = inspected(engine, up, service)
        return bool(now["RestartCount"] > before["RestartCount"] and now["State"]["Running"])

    until("the engine starts it again", started_again)
