"""The commands of `kourou bench` and their options."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

JsonFlag = Annotated[bool, typer.Option("--json", help="Print JSON, one object per line.")]

bench = typer.Typer(
    help="Measure this machine: send, consume, filter and more.",
    invoke_without_command=True,
)

Messages = Annotated[int, typer.Option("--messages", min=1, help="Number of messages.")]
Measured = Annotated[
    str | None,
    typer.Option(
        "-n",
        "--namesrv",
        metavar="ADDR",
        help="Measure these brokers. Default: a temporary one; NAMESRV_ADDR is ignored.",
    ),
]
Size = Annotated[int, typer.Option("--size", min=1, max=4_000_000, help="Body size in bytes.")]
Flush = Annotated[
    str, typer.Option("--flush", help="Flush of the temporary broker: async or sync.")
]

Huge = Annotated[
    bool, typer.Option("--huge", help="(with --peers) Include rows of 50 M messages and 10 GB.")
]
HugeShare = Annotated[
    float,
    typer.Option(min=0.000_001, max=1.0, help="(with --peers) Share of --huge to measure."),
]
RowsLost = Annotated[
    bool,
    typer.Option(
        "--rows-lost", help="(with --peers) Rows whose recorded figures RocketMQ 4.9 leads."
    ),
]
FlameGraphs = Annotated[
    Path | None,
    typer.Option(
        metavar="FOLDER", help="(with --peers) Draw flame graphs of Kourou's processes here."
    ),
]
Write = Annotated[
    bool,
    typer.Option("--write", help="(with --peers) Write the results to benchmarks/README.md."),
]


@bench.callback()
def bench_all(
    context: typer.Context,
    peers: Annotated[
        bool, typer.Option("--peers", help="Compare with RocketMQ, Kafka, NATS and Redis.")
    ] = False,
    only: Annotated[
        str, typer.Option(help="(with --peers) Rows such as send-64; empty: all.")
    ] = "",
    among: Annotated[
        str, typer.Option(help="(with --peers) Systems such as rocketmq,redis; empty: all.")
    ] = "",
    rounds: Annotated[int, typer.Option(min=1, help="(with --peers) Number of rounds.")] = 3,
    seconds: Annotated[
        float, typer.Option(min=0.1, help="(with --peers) Seconds per measurement.")
    ] = 5.0,
    warm_seconds: Annotated[
        float, typer.Option(min=0.0, help="(with --peers) Minimum seconds of warm-up.")
    ] = 20.0,
    warm_limit: Annotated[
        float, typer.Option(min=0.0, help="(with --peers) Maximum seconds of warm-up.")
    ] = 120.0,
    backlog: Annotated[
        int, typer.Option(min=1_000, help="(with --peers) Messages to consume.")
    ] = 1_000_000,
    size: Annotated[
        int, typer.Option(min=16, max=1_000_000, help="(with --peers) Body size in bytes.")
    ] = 1_024,
    huge: Huge = False,
    huge_share: HugeShare = 1.0,
    rows_lost: RowsLost = False,
    flame_graphs: FlameGraphs = None,
    write: Write = False,
    json: Annotated[
        bool, typer.Option("--json", help="(with --peers) Print JSON, one object per line.")
    ] = False,
) -> int | None:
    """Measure this machine: send, consume, latency. With --peers: compare with other brokers."""
    if peers and context.invoked_subcommand is not None:
        raise typer.BadParameter("--peers and a command exclude each other: give one of them")
    if not peers:
        _refuse_given(context)
        if context.invoked_subcommand is None:
            print(context.get_help())
            return 0
        return None
    from kourou_bench.measure import Scale
    from kourou_bench.peers import PeerOptions, names, run_peers

    scale = Scale(
        seconds=seconds,
        warm_seconds=warm_seconds,
        warm_limit=warm_limit,
        window_seconds=min(5.0, seconds),
        size=size,
        backlog=backlog,
        huge_share=huge_share,
    )
    options = PeerOptions(
        names(only),
        names(among),
        rounds,
        scale,
        huge,
        rows_lost=rows_lost,
        flame_graphs=flame_graphs,
        write=write,
        as_json=json,
    )
    return run_peers(options)


def _refuse_given(context: typer.Context) -> None:
    """Options of the comparison are rejected in other modes."""
    given = [
        f"--{name.replace('_', '-')}"
        for name in context.params
        if (source := context.get_parameter_source(name)) and source.name == "COMMANDLINE"
    ]
    if given:
        verb = context.invoked_subcommand
        where = f"; write options of `{verb}` after it" if verb else ""
        raise typer.BadParameter(f"{', '.join(given)} only with --peers{where}")


@bench.command("send", short_help="Sends per second and time to the reply.")
def bench_send(
    namesrv: Measured = None,
    messages: Messages = 200_000,
    size: Size = 1_024,
    in_flight: Annotated[int, typer.Option(min=1, max=65_536, help="Sends in flight.")] = 64,
    batch: Annotated[int, typer.Option(min=1, max=16_384, help="Messages per send.")] = 1,
    flush: Flush = "async",
    json: JsonFlag = False,
) -> int:
    """Measure how many messages are stored per second and how long a reply takes."""
    from kourou_bench.run import BenchSettings, run_bench

    return run_bench(
        "send",
        BenchSettings(namesrv, messages, size, flush, in_flight=in_flight, batch=batch),
        as_json=json,
    )


@bench.command("consume", short_help="Messages consumed per second from a backlog.")
def bench_consume(
    namesrv: Measured = None,
    messages: Messages = 200_000,
    size: Size = 1_024,
    handler: Annotated[
        str, typer.Option(help="message: one per call; batch: one pull per call.")
    ] = "message",
    json: JsonFlag = False,
) -> int:
    """Store a backlog, then measure how many messages per second a consumer receives."""
    from kourou_bench.run import BenchSettings, run_bench

    settings = BenchSettings(namesrv, messages, size, "async", handler=handler)
    return run_bench("consume", settings, as_json=json)


@bench.command("latency", short_help="Time from a send to its reply and to the consumer.")
def bench_latency(
    namesrv: Measured = None,
    messages: Messages = 2_000,
    size: Size = 1_024,
    flush: Flush = "async",
    json: JsonFlag = False,
) -> int:
    """Send one message at a time; measure the time to the reply and to the consumer."""
    from kourou_bench.run import BenchSettings, run_bench

    return run_bench("latency", BenchSettings(namesrv, messages, size, flush), as_json=json)


@bench.command("filter", short_help="Cost and savings of Python filters.")
def bench_filter(
    messages: Messages = 200_000,
    size: Size = 1_024,
    batch: Annotated[int, typer.Option(min=1, max=1_024, help="Messages per pull.")] = 32,
    pings: Annotated[int, typer.Option(min=1, help="Messages of another group per round.")] = 2_000,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds of each measurement.")] = 3,
    json: JsonFlag = False,
) -> int:
    """Read a backlog through each kind of filter; one message in 100 passes."""
    from kourou.cli.up import layers_lacking
    from kourou_bench.filter_run import FilterBench, run_filter_bench

    settings = FilterBench(messages, size, batch, pings=pings, rounds=rounds)
    return run_filter_bench(settings, layers_lacking(), as_json=json)


@bench.command("spark", short_help="Topics as Spark tables, compared with Parquet.")
def bench_spark(
    messages: Messages = 1_000_000,
    size: Annotated[
        list[int] | None,
        typer.Option(
            min=1, max=4_000_000, help="Body size in bytes; repeatable. Default: 128, 1024."
        ),
    ] = None,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds of reading, after one warm-up.")] = 3,
    rate: Annotated[
        int, typer.Option(min=1, max=100_000, help="Messages per second of the stream.")
    ] = 1_000,
    seconds: Annotated[float, typer.Option(min=1.0, help="Seconds of the stream.")] = 20.0,
    master: Annotated[str, typer.Option(help="Spark master: local[N].")] = "local[2]",
    json: JsonFlag = False,
) -> int:
    """Read the same rows through Spark from brokers, a store and Parquet; then write and stream."""
    from kourou_bench.spark_run import SIZES, SparkBench, run_spark_bench

    settings = SparkBench(
        messages, tuple(size or SIZES), rounds, rate=rate, seconds=seconds, master=master
    )
    return run_spark_bench(settings, as_json=json)


@bench.command(
    "replication", short_help="Masters with a slave and Raft groups, compared with RocketMQ."
)
def bench_replication(
    rounds: Annotated[int, typer.Option(min=1, help="Rounds; all setups in each.")] = 2,
    seconds: Annotated[float, typer.Option(min=0.1, help="Seconds per measurement.")] = 4.0,
    warm_seconds: Annotated[float, typer.Option(min=0.0, help="Seconds of warm-up.")] = 5.0,
    size: Size = 1_024,
    in_flight: Annotated[int, typer.Option(min=1, max=65_536, help="Sends in flight.")] = 64,
    only: Annotated[str, typer.Option(help="Setups such as sync,rocketmq-sync; empty: all.")] = "",
    json: JsonFlag = False,
) -> int:
    """Send to ASYNC_MASTER and SYNC_MASTER with a slave (Kourou, RocketMQ) and to a Raft group.

    Prints sends per second, latency, CPU of the servers, replication lag and ratios.
    """
    from kourou_bench.peers import names
    from kourou_bench.replication_run import ReplicationBench, run_replication_bench

    wanted = tuple(names(only))
    settings = ReplicationBench(rounds, seconds, warm_seconds, size, in_flight, wanted)
    return run_replication_bench(settings, as_json=json)


@bench.command("catch-up", short_help="Catch-up speed of a follower, compared with cp.")
def bench_catch_up(
    gigabytes: Annotated[
        float, typer.Option(min=0.001, help="Gigabytes of log that the follower misses.")
    ] = 0.5,
    size: Size = 1_024,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds of each kind of replication.")] = 2,
    only: Annotated[str, typer.Option(help="static or raft; empty: both.")] = "",
    json: JsonFlag = False,
) -> int:
    """Stop a follower, store messages, start it, and measure its catch-up in MB/s.

    `cp` copies the same files in the same round. Needs four times the disk space of the missing
    log.
    """
    from kourou_bench.catch_up import CatchUpBench, run_catch_up_bench
    from kourou_bench.peers import names

    settings = CatchUpBench(gigabytes, size, rounds, only=tuple(names(only)))
    return run_catch_up_bench(settings, as_json=json)


@bench.command("tracing", short_help="Cost of tracing for sends.")
def bench_tracing(
    rounds: Annotated[int, typer.Option(min=1, help="Rounds with and without tracing.")] = 5,
    seconds: Annotated[float, typer.Option(min=0.1, help="Seconds per measurement.")] = 3.0,
    size: Size = 1_024,
    ratio: Annotated[float, typer.Option(help="Share of messages to trace, 0 to 1.")] = 0.01,
    roots_per_s: Annotated[
        int, typer.Option(min=0, help="Maximum traces per second; 0: no limit.")
    ] = 0,
    json: JsonFlag = False,
) -> int:
    """Send in turns to a broker with tracing and to one without; print the ratio."""
    from kourou_bench.tracing_run import TracingBench, run_tracing_bench

    return run_tracing_bench(TracingBench(rounds, seconds, size, ratio, roots_per_s), as_json=json)


@bench.command("memory", short_help="Memory of an idle suite, per process.")
def bench_memory(
    settle_seconds: Annotated[
        float, typer.Option(min=0.0, help="Seconds to idle before measuring.")
    ] = 5.0,
    json: JsonFlag = False,
) -> int:
    """Start the suite without Spark and print the memory of each idle process."""
    from kourou_bench.memory_run import run_memory_bench

    return run_memory_bench(settle_seconds=settle_seconds, as_json=json)


@bench.command("gateway", short_help="Sends and receives over HTTP, compared with other clients.")
def bench_gateway(
    rounds: Annotated[int, typer.Option(min=1, help="Rounds; all setups in each.")] = 3,
    seconds: Annotated[float, typer.Option(min=0.1, help="Seconds of sending.")] = 5.0,
    warm_seconds: Annotated[
        float, typer.Option(min=0.0, help="Minimum seconds of warm-up.")
    ] = 20.0,
    size: Size = 1_024,
    messages: Annotated[
        int, typer.Option(min=1_000, help="Messages of the backlog to consume.")
    ] = 100_000,
    json: JsonFlag = False,
) -> int:
    """Send and consume through the HTTP gateway, the Python client, nats-py and redis-py."""
    from kourou_bench.gateway_run import GatewayBench, run_gateway_bench

    bench = GatewayBench(rounds, seconds, warm_seconds, size, messages)
    return run_gateway_bench(bench, as_json=json)
