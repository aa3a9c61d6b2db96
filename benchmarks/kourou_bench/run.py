"""`kourou bench KIND`: starts a cluster unless one is given, measures it and prints the results."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from kourou.client.client import Client
from kourou.errors import ConfigError
from kourou.service.lifecycle import new_event_loop
from kourou.service.local_cluster import ClusterSettings, LocalCluster
from kourou_bench.figures import Figure
from kourou_bench.work import WORK

FLUSH_TYPES = {"async": "ASYNC_FLUSH", "sync": "SYNC_FLUSH"}
HANDLERS = ("message", "batch")


@dataclass(frozen=True, slots=True)
class BenchSettings:
    """The parameters; printed with every result.

    `in_flight` sends wait for a reply at any time; each carries `batch` messages. `flush` applies
    to the broker that is started; it has no effect if a name server is given.
    """

    namesrv: str | None
    messages: int
    size: int
    flush: str
    in_flight: int = 1
    batch: int = 1
    handler: str = "message"
    queues: int = 8

    def __post_init__(self) -> None:
        """Raises ConfigError for parameters that cannot be measured."""
        if self.flush not in FLUSH_TYPES:
            raise ConfigError(f"--flush {self.flush}: use async or sync")
        if self.handler not in HANDLERS:
            raise ConfigError(f"--handler {self.handler}: use message or batch")


def run_bench(kind: str, settings: BenchSettings, *, as_json: bool) -> int:
    """Run one kind of workload and print its results."""
    with _cluster(settings) as address, asyncio.Runner(loop_factory=new_event_loop) as runner:
        figures = runner.run(_measure(kind, address, settings))
    record = {"kind": kind, **asdict(settings)}
    if not as_json:
        print(heading(kind, settings))
    for figure in figures:
        print(figure.as_json(record) if as_json else figure.as_text(), flush=True)
    return 0


def heading(kind: str, settings: BenchSettings) -> str:
    """A line that describes what is measured; results mean nothing without it."""
    parts = [f"{settings.messages:,} messages of {settings.size:,} bytes"]
    if kind == "send":
        batches = f" of {settings.batch:,} messages" if settings.batch > 1 else ""
        parts.append(f"{settings.in_flight:,} sends{batches} in flight")
    if kind == "consume":
        parts.append(f"handler by {settings.handler}")
    if settings.namesrv is None:
        parts.append(f"a temporary broker, {settings.flush} flush")
    else:
        parts.append(f"the brokers of {settings.namesrv} with their flush setting")
    return f"{kind}: {'; '.join(parts)}"


async def _measure(kind: str, address: str, settings: BenchSettings) -> list[Figure]:
    async with Client(address, group=f"bench-{kind}") as client:
        topic = f"bench-{kind}"
        await client.admin.topics.create(topic, queues=settings.queues)
        return await WORK[kind](client, topic, settings)


@contextmanager
def _cluster(settings: BenchSettings) -> Iterator[str]:
    if settings.namesrv is not None:
        yield settings.namesrv
        return
    broker = {"flushDiskType": FLUSH_TYPES[settings.flush]}
    with (
        tempfile.TemporaryDirectory(prefix="kourou-bench-") as folder,
        LocalCluster(Path(folder), ClusterSettings(broker=broker)) as cluster,
    ):
        yield cluster.address
