"""The commands of `kourou bench` and their arguments.

Lives here: names, options, one line of help each. May not live here: what a command measures; each
imports its module when it is called, so that `kourou --help` stays quick.
"""

from __future__ import annotations

from typing import Annotated

import typer

JsonFlag = Annotated[bool, typer.Option("--json", help="Machine-readable, one object a line.")]

bench = typer.Typer(
    help="Measure this machine: send, consume, filter and more. Prints; never judges.",
    invoke_without_command=True,
)

Messages = Annotated[int, typer.Option("--messages", min=1, help="How many messages.")]
Measured = Annotated[
    str | None,
    typer.Option(
        "-n",
        "--namesrv",
        metavar="ADDR",
        help="Measure the brokers there; else one of its own, whatever NAMESRV_ADDR says.",
    ),
]
Size = Annotated[int, typer.Option("--size", min=1, max=4_000_000, help="Bytes of a body.")]
Flush = Annotated[str, typer.Option("--flush", help="async or sync, of the broker it starts.")]


@bench.callback()
def bench_all(
    context: typer.Context,
    peers: Annotated[
        bool, typer.Option("--peers", help="Compare with RocketMQ, Kafka, NATS and Redis.")
    ] = False,
    only: Annotated[
        str, typer.Option(help="(with --peers) Rows, like send-64; all if empty.")
    ] = "",
    among: Annotated[
        str, typer.Option(help="(with --peers) Like rocketmq,redis; all if empty.")
    ] = "",
    rounds: Annotated[int, typer.Option(min=1, help="(with --peers) How often.")] = 3,
    seconds: Annotated[float, typer.Option(min=0.1, help="(with --peers) Of a measurement.")] = 5.0,
    warm_seconds: Annotated[
        float, typer.Option(min=0.0, help="(with --peers) Of the same work before, at least.")
    ] = 20.0,
    warm_limit: Annotated[
        float, typer.Option(min=0.0, help="(with --peers) Of the same work before, at most.")
    ] = 120.0,
    backlog: Annotated[int, typer.Option(min=1_000, help="(with --peers) To consume.")] = 1_000_000,
    size: Annotated[
        int, typer.Option(min=16, max=1_000_000, help="(with --peers) Of a body, bytes.")
    ] = 1_024,
    huge: Annotated[
        bool, typer.Option("--huge", help="(with --peers) Rows of 50 M messages and 10 GB, too.")
    ] = False,
    huge_share: Annotated[
        float, typer.Option(min=0.000_001, max=1.0, help="(with --peers) Of those 50 M and 10 GB.")
    ] = 1.0,
    write: Annotated[
        bool, typer.Option("--write", help="(with --peers) Put it into benchmarks/README.md.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="(with --peers) One object a line.")] = False,
) -> int | None:
    """Measure this machine: send, consume, latency; or with --peers everything side by side."""
    if peers and context.invoked_subcommand is not None:
        raise typer.BadParameter("--peers stands alone")
    if not peers:
        _refuse_given(context)
        if context.invoked_subcommand is None:
            print(context.get_help())
            return 0
        return None
    from kourou.cli.bench.measure import Scale
    from kourou.cli.bench.peers import PeerOptions, names, run_peers

    scale = Scale(
        seconds=seconds,
        warm_seconds=warm_seconds,
        warm_limit=warm_limit,
        window_seconds=min(5.0, seconds),
        size=size,
        backlog=backlog,
        huge_share=huge_share,
    )
    options = PeerOptions(names(only), names(among), rounds, scale, huge, write=write, as_json=json)
    return run_peers(options)


def _refuse_given(context: typer.Context) -> None:
    """Options of the comparison mean nothing to anything else."""
    given = [
        f"--{name.replace('_', '-')}"
        for name in context.params
        if (source := context.get_parameter_source(name)) and source.name == "COMMANDLINE"
    ]
    if given:
        verb = context.invoked_subcommand
        where = f"; those of `{verb}` stand behind it" if verb else ""
        raise typer.BadParameter(f"{', '.join(given)} only with --peers{where}")


@bench.command("send", short_help="Sends stored per second, and how long an answer takes.")
def bench_send(
    namesrv: Measured = None,
    messages: Messages = 200_000,
    size: Size = 1_024,
    in_flight: Annotated[int, typer.Option(min=1, max=65_536, help="Sends not yet answered.")] = 64,
    batch: Annotated[int, typer.Option(min=1, max=16_384, help="Messages of one send.")] = 1,
    flush: Flush = "async",
    json: JsonFlag = False,
) -> int:
    """Send messages and count how many are stored per second, and how long an answer takes."""
    from kourou.cli.bench.run import BenchSettings, run_bench

    return run_bench(
        "send",
        BenchSettings(namesrv, messages, size, flush, in_flight=in_flight, batch=batch),
        as_json=json,
    )


@bench.command("consume", short_help="Messages of a backlog handed over per second.")
def bench_consume(
    namesrv: Measured = None,
    messages: Messages = 200_000,
    size: Size = 1_024,
    handler: Annotated[
        str, typer.Option(help="message: one a call; batch: as pulled.")
    ] = "message",
    json: JsonFlag = False,
) -> int:
    """Store a backlog, then count how many messages per second a consumer is handed."""
    from kourou.cli.bench.run import BenchSettings, run_bench

    settings = BenchSettings(namesrv, messages, size, "async", handler=handler)
    return run_bench("consume", settings, as_json=json)


@bench.command("latency", short_help="One message at a time, until it is answered and handed over.")
def bench_latency(
    namesrv: Measured = None,
    messages: Messages = 2_000,
    size: Size = 1_024,
    flush: Flush = "async",
    json: JsonFlag = False,
) -> int:
    """Send one message at a time; how long until the answer, and until a consumer has it."""
    from kourou.cli.bench.run import BenchSettings, run_bench

    return run_bench("latency", BenchSettings(namesrv, messages, size, flush), as_json=json)


@bench.command("filter", short_help="What a filter in Python costs and saves, beside others.")
def bench_filter(
    messages: Messages = 200_000,
    size: Size = 1_024,
    batch: Annotated[int, typer.Option(min=1, max=1_024, help="Messages of one pull.")] = 32,
    pings: Annotated[int, typer.Option(min=1, help="Of another group, in a round.")] = 2_000,
    rounds: Annotated[int, typer.Option(min=1, help="Of costs, and of pings.")] = 3,
    json: JsonFlag = False,
) -> int:
    """Read a backlog of which one message in 100 is wanted: filtered by whom, at what cost?"""
    from kourou.cli.bench.filter_run import FilterBench, run_filter_bench
    from kourou.cli.up import layers_lacking

    settings = FilterBench(messages, size, batch, pings=pings, rounds=rounds)
    return run_filter_bench(settings, layers_lacking(), as_json=json)


@bench.command("spark", short_help="Topics as tables, beside Parquet and a pull consumer.")
def bench_spark(
    messages: Messages = 1_000_000,
    size: Annotated[
        list[int] | None,
        typer.Option(min=1, max=4_000_000, help="Of a body; may be repeated. Else 128, 1024."),
    ] = None,
    rounds: Annotated[int, typer.Option(min=1, help="Of reading, after one more.")] = 3,
    rate: Annotated[int, typer.Option(min=1, max=100_000, help="Of a stream, a second.")] = 1_000,
    seconds: Annotated[float, typer.Option(min=1.0, help="Of that stream.")] = 20.0,
    master: Annotated[str, typer.Option(help="Where Spark runs, local[N].")] = "local[2]",
    json: JsonFlag = False,
) -> int:
    """Read the same rows through Spark from brokers, a store and Parquet; write, and stream."""
    from kourou.cli.bench.spark_run import SIZES, SparkBench, run_spark_bench

    settings = SparkBench(
        messages, tuple(size or SIZES), rounds, rate=rate, seconds=seconds, master=master
    )
    return run_spark_bench(settings, as_json=json)


@bench.command("replication", short_help="Masters with a slave and a Raft group, beside RocketMQ.")
def bench_replication(
    rounds: Annotated[int, typer.Option(min=1, help="Of everything, in turns.")] = 2,
    seconds: Annotated[float, typer.Option(min=0.1, help="Of a measurement.")] = 4.0,
    warm_seconds: Annotated[float, typer.Option(min=0.0, help="Of the same work before.")] = 5.0,
    size: Size = 1_024,
    in_flight: Annotated[int, typer.Option(min=1, max=65_536, help="Sends not yet answered.")] = 64,
    only: Annotated[str, typer.Option(help="Setups, like sync,rocketmq-sync; all if empty.")] = "",
    json: JsonFlag = False,
) -> int:
    """Send to ASYNC_MASTER and SYNC_MASTER with a slave, ours and RocketMQ's, and to a Raft group.

    Prints sends a second, how long each took, what servers computed, how far followers are behind,
    and ratios.
    """
    from kourou.cli.bench.peers import names
    from kourou.cli.bench.replication_run import ReplicationBench, run_replication_bench

    wanted = tuple(names(only))
    settings = ReplicationBench(rounds, seconds, warm_seconds, size, in_flight, wanted)
    return run_replication_bench(settings, as_json=json)


@bench.command("catch-up", short_help="A follower that was away gets what it misses, beside cp.")
def bench_catch_up(
    gigabytes: Annotated[float, typer.Option(min=0.001, help="Of log that it misses.")] = 0.5,
    size: Size = 1_024,
    rounds: Annotated[int, typer.Option(min=1, help="Of each way, in turns.")] = 2,
    only: Annotated[str, typer.Option(help="static or raft; both if empty.")] = "",
    json: JsonFlag = False,
) -> int:
    """Stop a follower, store without it, start it: MB/s until it has all, beside a plain copy.

    The same files are copied by `cp` in the same round. Takes four times as much of disk as the
    follower misses.
    """
    from kourou.cli.bench.catch_up import CatchUpBench, run_catch_up_bench
    from kourou.cli.bench.peers import names

    settings = CatchUpBench(gigabytes, size, rounds, only=tuple(names(only)))
    return run_catch_up_bench(settings, as_json=json)


@bench.command("tracing", short_help="What tracing costs those who send, beside sends without it.")
def bench_tracing(
    rounds: Annotated[int, typer.Option(min=1, help="Of both, in turns.")] = 5,
    seconds: Annotated[float, typer.Option(min=0.1, help="Of a turn.")] = 3.0,
    size: Size = 1_024,
    ratio: Annotated[float, typer.Option(help="The share of messages that is traced.")] = 0.01,
    roots_per_s: Annotated[
        int, typer.Option(min=0, help="Most traces a second; 0: as many as the share says.")
    ] = 0,
    json: JsonFlag = False,
) -> int:
    """Send to a broker that traces and to one that does not, in turns; the ratio of sends."""
    from kourou.cli.bench.tracing_run import TracingBench, run_tracing_bench

    return run_tracing_bench(TracingBench(rounds, seconds, size, ratio, roots_per_s), as_json=json)


@bench.command("memory", short_help="What an idle suite holds in memory, process by process.")
def bench_memory(
    settle_seconds: Annotated[float, typer.Option(min=0.0, help="Of idling before.")] = 5.0,
    json: JsonFlag = False,
) -> int:
    """Start the suite without Spark, let it idle, and tell what each process holds."""
    from kourou.cli.bench.memory_run import run_memory_bench

    return run_memory_bench(settle_seconds=settle_seconds, as_json=json)


@bench.command("gateway", short_help="Sends and receives over HTTP, beside clients without it.")
def bench_gateway(
    rounds: Annotated[int, typer.Option(min=1, help="Of everything, in turns.")] = 3,
    seconds: Annotated[float, typer.Option(min=0.1, help="Of sending.")] = 5.0,
    warm_seconds: Annotated[
        float, typer.Option(min=0.0, help="Of the same work before, at least.")
    ] = 20.0,
    size: Size = 1_024,
    messages: Annotated[int, typer.Option(min=1_000, help="Of a backlog to consume.")] = 100_000,
    json: JsonFlag = False,
) -> int:
    """Send and consume through the HTTP gateway, by our client, by nats-py and by redis-py."""
    from kourou.cli.bench.gateway_run import GatewayBench, run_gateway_bench

    bench = GatewayBench(rounds, seconds, warm_seconds, size, messages)
    return run_gateway_bench(bench, as_json=json)
