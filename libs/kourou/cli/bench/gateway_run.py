"""`kourou bench gateway`: sends and receives over HTTP beside clients of their own protocols.

Lives here: the rows, the turns, the table. May not live here: work (kourou.cli.bench.
gateway_driver and the peers' drivers), one measurement (kourou.cli.bench.measure).

Each row is done by every way in turn, round after round, with servers of its own each time, so that
whatever else the machine does it does to all. The ZeroMQ client, nats-py and redis-py speak with
their servers themselves; the gateway's row has the gateway, as one more process, in between. What a
machine lacks is said and left out.

State: soft.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from kourou.cli.bench.driving import Outcome
from kourou.cli.bench.measure import Scale, finished, measure
from kourou.cli.bench.rows import BACKLOG, Work
from kourou.cli.bench.systems import Kourou, Nats, Redis, System
from kourou.cli.checkout import find_checkout
from kourou.errors import ConfigError, KourouError
from kourou.service.local_cluster import ClusterSettings, LocalCluster
from kourou.service.processes import Children

GATEWAY = "gateway"


@dataclass(frozen=True, slots=True)
class GatewayBench:
    """How much of everything; `rounds` of each row and way, in turns."""

    rounds: int = 3
    seconds: float = 3.0
    warm_seconds: float = 2.0
    size: int = 1_024
    messages: int = 100_000
    """Of the backlog that is consumed."""


@dataclass(frozen=True, slots=True)
class Line:
    """One row: what is measured, and of which outcome's value."""

    name: str
    about: str
    value: str
    unit: str
    work: Work
    without: frozenset[str] = frozenset()
    """Ways that have no such thing."""


LINES = (
    Line("send-64", "send, 64 in flight", "rate", "msg/s", Work("send", in_flight=64)),
    Line("send-1", "send, 1 in flight: median round trip", "p50_ms", "ms", Work("send")),
    Line(
        "batch-32",
        "send, batches of 32, 8 in flight",
        "rate",
        "msg/s",
        Work("send", in_flight=8, batch=32),
        frozenset({"nats"}),  # nats-py publishes one message a request
    ),
    Line(
        "consume",
        "consume a backlog (gateway: leases and acks of 256)",
        "rate",
        "msg/s",
        Work("consume", messages=BACKLOG, handler="batch"),
    ),
)


def run_gateway_bench(bench: GatewayBench, *, as_json: bool) -> int:
    """Measure and print; 1 if a measurement failed."""
    scale = Scale(bench.seconds, bench.warm_seconds, bench.size, bench.messages)
    ways: dict[str, System] = {"zeromq": Kourou(), **_peers()}
    found: dict[tuple[str, str], list[float]] = {}
    failed = False
    for round_number in range(bench.rounds):
        for line in LINES:
            for way in (GATEWAY, *ways):
                if way in line.without or (way in ways and ways[way].cannot(line.work)):
                    continue
                try:
                    outcome = (
                        _over_http(line.work, scale)
                        if way == GATEWAY
                        else measure(ways[way], line.work, scale)
                    )
                except KourouError as error:
                    failed = True
                    _tell(f"FAILED: {line.name} by {way}: {error}")
                    continue
                found.setdefault((line.name, way), []).append(outcome.values[line.value])
                _tell(f"round {round_number + 1}: {line.name} {way}: {_last(found, line, way)}")
    _show(bench, found, [GATEWAY, *ways], as_json=as_json)
    return int(failed)


def _peers() -> dict[str, System]:
    try:
        scripts = find_checkout() / "benchmarks" / "peers"
    except ConfigError as error:
        _tell(f"NOT MEASURED: nats, redis: {error}")
        return {}
    systems: list[System] = [Nats(scripts), Redis(scripts)]
    there: dict[str, System] = {}
    for system in systems:
        lack = system.missing()
        if lack:
            _tell(f"NOT MEASURED: {system.name.value}: {lack}")
        else:
            there[system.name.value] = system
    return there


def _over_http(work: Work, scale: Scale) -> Outcome:
    """One measurement with a gateway before the broker."""
    with tempfile.TemporaryDirectory(prefix="kourou-bench-") as name:
        folder = Path(name)
        settings = ClusterSettings(console={})
        with LocalCluster(folder / "servers", settings) as cluster, Children(folder) as children:
            assert cluster.console is not None
            gateway = str(cluster.console.ready["http"]).removeprefix("http://")
            options = scale.options(work, f"{gateway}|{cluster.address}")
            command = [sys.executable, "-m", "kourou.cli.bench.gateway_driver"]
            child = children.start("driver", [*command, *options.as_arguments()], says_ready=False)
            outcome = finished(child)
    outcome.check()
    return outcome


def _last(found: Mapping[tuple[str, str], list[float]], line: Line, way: str) -> str:
    return f"{found[line.name, way][-1]:,.3g} {line.unit}"


def _show(
    bench: GatewayBench,
    found: Mapping[tuple[str, str], list[float]],
    ways: list[str],
    *,
    as_json: bool,
) -> None:
    if not as_json:
        print(f"\n{'':54}" + "".join(f"{way:>14}" for way in ways) + f"{'gateway/zmq':>14}")
    for line in LINES:
        medians = {
            way: statistics.median(found[line.name, way])
            for way in ways
            if (line.name, way) in found
        }
        ratio = None
        if GATEWAY in medians and "zeromq" in medians:
            ratio = medians[GATEWAY] / medians["zeromq"]
        if as_json:
            told = {"kind": "gateway", **asdict(bench), "row": line.name, "unit": line.unit}
            rounds = {way: found.get((line.name, way), []) for way in ways}
            print(json.dumps({**told, "rounds_of": rounds, **medians, "ratio": ratio}), flush=True)
            continue
        cells = "".join(
            f"{medians[way]:>14,.4g}" if way in medians else f"{'-':>14}" for way in ways
        )
        shown = "-" if ratio is None else f"{ratio:.3g} x"
        print(f"{line.about + ', ' + line.unit:54}{cells}{shown:>14}", flush=True)


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
