"""`kourou bench filter`: starts a cluster with filter servers and measures in a fixed order."""

from __future__ import annotations

import asyncio
import functools
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import asdict, dataclass
from pathlib import Path

from kourou.client.client import Client
from kourou.client.filters.expressions import Wanted
from kourou.errors import ConfigError
from kourou.service.lifecycle import new_event_loop
from kourou.service.local_cluster import ClusterSettings, LocalCluster
from kourou.service.os_processes import cores_left, keep_to
from kourou.service.processes import Children
from kourou_bench.driving import DriverOptions, Outcome
from kourou_bench.features import FILTER, PASSES
from kourou_bench.figures import Figure, quantiles
from kourou_bench.filter_costs import (
    Cost,
    beside_figures,
    cost_figures,
    middle,
    throughput_figures,
)
from kourou_bench.filtering import (
    PLAIN,
    WAYS,
    by_properties,
    drain,
    fill,
    hostile,
    read_all,
    start_times_ns,
    until_serving,
)
from kourou_bench.session import Driver
from kourou_bench.systems import Kourou

SERVERS = (1, 2, 4)
TOGETHER = "summary: cost of a filter for its group, and its effect on another group"


@dataclass(frozen=True, slots=True)
class FilterBench:
    """The parameters; printed with every result.

    One in 100 of `messages` passes. Costs are measured with pulls of `batch` messages, in `rounds`
    rounds; in each of as many other rounds, `pings` messages measure the p99 of another group.
    """

    messages: int = 200_000
    size: int = 1_024
    batch: int = 32
    queues: int = 8
    pings: int = 2_000
    rounds: int = 3

    def __post_init__(self) -> None:
        """Raises ConfigError for parameters that would measure nothing."""
        least = PASSES + self.queues
        if self.messages < least:
            raise ConfigError(f"--messages {self.messages} is too few; use at least {least}")


def run_filter_bench(settings: FilterBench, lacking: tuple[str, ...], *, as_json: bool) -> int:
    """Measure and print; raises ConfigError, listing `lacking`, if filter servers cannot run."""
    if lacking:
        raise ConfigError(
            f"filter servers cannot run on this machine; missing: {'; '.join(lacking)}",
            hint="run kourou doctor for instructions",
        )
    record = {"kind": "filter", **asdict(settings)}
    if not as_json:
        print(heading(settings))
    figures: list[Figure] = []
    for figure in _measured(settings):
        print(figure.as_json(record) if as_json else figure.as_text(), flush=True)
        figures.append(figure)
    if not as_json:
        print("\n".join(["", TOGETHER, *(one.as_text() for one in together(figures))]))
    return 0


def together(figures: Sequence[Figure]) -> list[Figure]:
    """What filters cost their own group, and their effect on other groups in the same run."""
    wanted = ("CPU over", "bytes saved", "another group")
    return [one for one in figures if any(word in one.name for word in wanted)]


def heading(settings: FilterBench) -> str:
    """A line that describes what is measured."""
    return (
        f"filter: {settings.messages:,} messages of {settings.size:,} bytes in {settings.queues} "
        f"queues, one in {PASSES} passes; pulls of {settings.batch}; "
        f"{settings.rounds} × {settings.pings:,} pings; a temporary cluster"
    )


def _measured(settings: FilterBench) -> Iterator[Figure]:
    with (
        tempfile.TemporaryDirectory(prefix="kourou-bench-") as folder,
        LocalCluster(Path(folder), _placed_anywhere()) as cluster,
        asyncio.Runner(loop_factory=new_event_loop) as runner,
    ):
        passing = runner.run(_fill(cluster.address, settings))
        yield from _costs(cluster, settings, passing, runner)
        yield from quantiles("start of a worker", runner.run(_starts(cluster.address)))
        yield from _beside(cluster, settings, runner)
        yield from _throughput(cluster, settings, passing, runner)
        yield from _beside(cluster, settings, runner)


def _placed_anywhere() -> ClusterSettings:
    """Cost per message is measured with all cores available to the kernel."""
    cores = ",".join(map(str, sorted(os.sched_getaffinity(0))))
    return ClusterSettings(filter_servers=1, broker={"processCores": cores})


async def _fill(address: str, settings: FilterBench) -> int:
    async with Client(address) as client:
        passing = await fill(client, settings.messages, settings.size, settings.queues)
    await until_serving(address, 1)
    return passing


def _costs(
    cluster: LocalCluster, settings: FilterBench, passing: int, runner: asyncio.Runner
) -> Iterator[Figure]:
    pids = {"broker": cluster.brokers[0].pid, "filter server": cluster.filter_servers[0].pid}
    costs: dict[str, list[Cost]] = {way: [] for way in WAYS}
    for _ in range(settings.rounds):
        for way, found in costs.items():
            reading = read_all(cluster.address, way, settings.batch, passing, pids)
            found.append(runner.run(reading))
    yield from cost_figures({way: middle(found) for way, found in costs.items()}, PLAIN)


async def _starts(address: str) -> list[int]:
    async with Client(address) as client:
        return await start_times_ns(client)


def _throughput(
    cluster: LocalCluster, settings: FilterBench, passing: int, runner: asyncio.Runner
) -> Iterator[Figure]:
    def timed(label: str, wanted: Wanted, due: int) -> float:
        return runner.run(drain(cluster.address, wanted, label, due))

    took = {
        "consuming all": timed("all", "*", settings.messages),
        "consuming, SQL92": timed("sql", FILTER, passing),
    }
    for servers in SERVERS:
        while len(cluster.filter_servers) < servers:
            cluster.start_filter_server(0, len(cluster.filter_servers))
        runner.run(until_serving(cluster.address, servers))
        label = f"consuming, {servers} filter server{'s' * (servers > 1)}"
        took[label] = timed(f"python-{servers}", by_properties, passing)
    yield from throughput_figures(took, settings.messages)


def _beside(
    cluster: LocalCluster, settings: FilterBench, runner: asyncio.Runner
) -> Iterator[Figure]:
    """Measure another group next to hostile filters, with all filter servers that are running.

    Each filter server has workers, and all share the same cores. The first run keeps the broker on
    the core that the workers leave free, as a cluster on a machine with few cores does, and the
    other group with it, because applications usually run on other machines. The second run lets the
    kernel place both on any core, also where workers run.
    """
    address, servers = cluster.address, len(cluster.filter_servers)
    there = os.sched_getaffinity(0)
    left = cores_left(there)
    with Children(cluster.folder) as children:
        for where, cores in ((f"{servers}", left), (f"{servers}, on any core", there)):
            alone_ms, beside_ms = [], []
            keep_to(cluster.brokers[0].pid, cores)
            driver = functools.partial(_pinging, children, address, settings, cores)
            for number in range(settings.rounds):
                alone_ms.append(p99_ms(driver().measure()))
                label = f"{where.replace(', ', '-').replace(' ', '-')}-{number}"
                beside_ms.append(runner.run(_p99_beside(address, label, driver)))
            yield from beside_figures(where, alone_ms, beside_ms)
        keep_to(cluster.brokers[0].pid, there)


async def _p99_beside(address: str, label: str, driver: Callable[[], Driver]) -> float:
    async with hostile(address, label):
        return p99_ms(await asyncio.to_thread(driver().measure))


def _pinging(children: Children, address: str, settings: FilterBench, cores: Set[int]) -> Driver:
    """The driver of another application, in its own process; this one runs hostile consumers."""
    options = DriverOptions(
        address=address, work="pings", messages=settings.pings, size=settings.size
    )
    driver = Driver(children, "pings", Kourou().driver(options))
    keep_to(driver.pid, cores)
    driver.wait_until_ready()
    return driver


def p99_ms(outcome: Outcome) -> float:
    """The p99 from the call of send to the call of the handler, for a group without a filter."""
    return outcome.values["end to end p99"]
