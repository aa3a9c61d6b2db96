"""`kourou bench gateway`: sends and receives over HTTP, and with clients of other protocols.

The ZeroMQ client, nats-py and redis-py connect to their servers directly; in the gateway's row the
gateway is one more process in between. Systems that this machine lacks are reported and left out.

State: soft.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass

from kourou.cli.checkout import find_checkout
from kourou.errors import ConfigError
from kourou.telemetry.metric_table import LOOP_LAG_BOUNDS_MS
from kourou_bench.comparison import Comparison, Result, median
from kourou_bench.measure import Measured, Scale, prepared
from kourou_bench.rows import BACKLOG, Goal, Name, Row, Work
from kourou_bench.systems import Gateway, Kourou, Nats, Redis, System

WAYS = {
    Name.GATEWAY: "gateway",
    Name.KOUROU: "zeromq",
    Name.NATS: "nats",
    Name.REDIS: "redis",
}
PRINTS = Goal(True, 0, None)
"""A placeholder: these rows have no goal."""


@dataclass(frozen=True, slots=True)
class GatewayBench:
    """The parameters; every row of every system is measured in `rounds` rounds, in turns."""

    rounds: int = 3
    seconds: float = 5.0
    warm_seconds: float = 20.0
    size: int = 1_024
    messages: int = 100_000
    """The size of the backlog that is consumed."""

    @property
    def scale(self) -> Scale:
        """The parameters as a `Scale`."""
        return Scale(
            self.seconds,
            self.warm_seconds,
            size=self.size,
            backlog=self.messages,
            window_seconds=min(5.0, self.seconds),
        )


def _line(
    name: str, about: str, value: str, unit: str, work: Work, absent: Mapping[Name, str] | None
) -> Row:
    works = {way: work for way in WAYS if not absent or way not in absent}
    return Row(name, about, value, unit, PRINTS, works, absent=absent)


LINES = (
    _line("send-64", "send, 64 in flight", "rate", "msg/s", Work("send", in_flight=64), None),
    _line("send-1", "send, 1 in flight: median round trip", "p50_ms", "ms", Work("send"), None),
    _line(
        "batch-32",
        "send, batches of 32, 8 in flight",
        "rate",
        "msg/s",
        Work("send", in_flight=8, batch=32),
        {Name.NATS: "nats-py publishes one message per request"},
    ),
    _line(
        "consume",
        "consume a backlog (gateway: leases and acks of 256)",
        "rate",
        "msg/s",
        Work("consume", messages=BACKLOG, handler="batch"),
        None,
    ),
)


def run_gateway_bench(bench: GatewayBench, *, as_json: bool) -> int:
    """Measure and print; returns 1 if a measurement failed."""
    systems: dict[Name, System] = {Name.GATEWAY: Gateway(), Name.KOUROU: Kourou(), **_peers()}
    missing = {name: system.missing() for name, system in systems.items()}

    def absent(name: Name, work: Work) -> str:
        if name not in systems:
            return "its driver is only in the source checkout"
        return missing[name] or systems[name].cannot(work)

    def opened(name: Name, work: Work) -> AbstractContextManager[Measured]:
        return prepared(systems[name], work, bench.scale)

    for name, lack in missing.items():
        if lack:
            _tell(f"NOT MEASURED: {name}: {lack}")
    results = Comparison(opened, absent, _tell).run(LINES, bench.rounds)
    _show(bench, results, as_json=as_json)
    failures = [
        one for result in results for cell in result.cells.values() for one in cell.failures
    ]
    return int(bool(failures))


def _peers() -> dict[Name, System]:
    try:
        scripts = find_checkout() / "benchmarks" / "peers"
    except ConfigError as error:
        _tell(f"NOT MEASURED: nats, redis: {error}")
        return {}
    return {Name.NATS: Nats(scripts), Name.REDIS: Redis(scripts)}


def _show(bench: GatewayBench, results: Sequence[Result], *, as_json: bool) -> None:
    if not as_json:
        print(
            f"gateway: {bench.size:,} bytes; {bench.rounds} rounds of {bench.seconds:g} s in turns,"
            f" warm-up {bench.warm_seconds:g} s at least; {bench.messages:,} messages consumed"
        )
        print(f"\n{'':54}" + "".join(f"{way:>14}" for way in WAYS.values()) + f"{'ratio':>14}")
    for result in results:
        row, cells = result.row, result.cells
        medians = {
            way: value for name, way in WAYS.items() if (value := cells[name].median) is not None
        }
        # The ratios are relative to Kourou's own client, hence the inverse.
        ratios = [1 / one for one in result.ratios(Name.GATEWAY)]
        ratio = median(ratios)
        lag = lag_figures(cells[Name.GATEWAY].lags)
        if as_json:
            record = {"kind": "gateway", **asdict(bench), "row": row.name, "unit": row.unit}
            rounds = {way: cells[name].values for name, way in WAYS.items()}
            print(
                json.dumps(
                    {**record, "rounds_of": rounds, **medians, "ratio": ratio, "loop_lag_ms": lag}
                ),
                flush=True,
            )
            continue
        shown = "".join(
            f"{medians[way]:>14,.4g}" if way in medians else f"{'-':>14}" for way in WAYS.values()
        )
        last = "-" if ratio is None else f"{ratio:.3g} x"
        print(f"{row.about + ', ' + row.unit:54}{shown}{last:>14}", flush=True)
        if lag:
            print(f"  {lag_line(lag)}", flush=True)


def lag_figures(lags: Mapping[float, int]) -> dict[str, float]:
    """p50, p99 and max in ms, each the upper bound of its bucket; empty without measurements."""
    count = max(lags.values(), default=0)
    if not count:
        return {}
    shares = {"p50": 0.5, "p99": 0.99, "max": 1.0}
    return {
        name: min(bound for bound, below in lags.items() if below >= share * count)
        for name, share in shares.items()
    }


def lag_line(lag: Mapping[str, float]) -> str:
    """The line with the event loop's lag below a row."""
    shown = (
        f"{name} over {LOOP_LAG_BOUNDS_MS[-1]:,g}" if math.isinf(ms) else f"{name} {ms:,g}"
        for name, ms in lag.items()
    )
    return f"gateway loop lag, ms: {', '.join(shown)}"


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
