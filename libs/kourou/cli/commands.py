"""The commands of `kourou` and their arguments.

Lives here: names, options, one line of help each. May not live here: what a command does; each
imports its module when it is called, so that `kourou --help` stays quick.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
import typer.core

from kourou.cli.admin.commands import admin
from kourou.cli.bench.commands import bench
from kourou.cli.history import history, state_at, undo
from kourou.cli.keys import keys
from kourou.cli.services import run_service

ORDER = (
    *("demo", "up", "send", "tail", "admin", "history", "stateAt", "undo", "backup", "restore"),
    *("namesrv", "broker", "ha-replica", "filter-server", "spark-etl", "console"),
    *("shutdown", "health", "keys"),
    *("bench", "doctor", "completion", "test", "version"),
)
"""Of the help: what a newcomer types first, then what operators do, then the project itself."""


class InOrder(typer.core.TyperGroup):
    """The commands as ORDER has them."""

    def list_commands(self, ctx: Any) -> list[str]:
        """All of them; one that ORDER lacks comes last."""
        known = super().list_commands(ctx)
        return sorted(known, key=lambda name: ORDER.index(name) if name in ORDER else len(ORDER))


app = typer.Typer(
    name="kourou",
    cls=InOrder,
    help="A message broker suite that stores and speaks what Apache RocketMQ stores and speaks.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

PASSED_ON = {
    "add_help_option": False,
    "allow_extra_args": True,
    "ignore_unknown_options": True,
}

NameServer = Annotated[
    str | None,
    typer.Option(
        "-n",
        "--namesrv",
        metavar="ADDR",
        help="Name servers, host:port;host:port; else NAMESRV_ADDR.",
    ),
]
JsonFlag = Annotated[bool, typer.Option("--json", help="Machine-readable, one object a line.")]
PlainFlag = Annotated[bool, typer.Option("--plain", help="Lines for a log, nothing that moves.")]
TraceFlag = Annotated[
    bool, typer.Option("--trace", help="Spans to OTEL_EXPORTER_OTLP_ENDPOINT, else to port 4318.")
]


# -- services -------------------------------------------------------------------------------------
@app.command(
    context_settings=PASSED_ON, short_help="Run a name server; its own options: namesrv --help."
)
def namesrv(context: typer.Context) -> int:
    """Run a name server (`kourou namesrv --help`)."""
    return run_service("namesrv", context.args)


@app.command(context_settings=PASSED_ON, short_help="Run a broker; its own options: broker --help.")
def broker(context: typer.Context) -> int:
    """Run a broker: -c FILE, -n ADDR, -m prints every setting (`kourou broker --help`)."""
    return run_service("broker", context.args)


@app.command(
    "ha-replica",
    context_settings=PASSED_ON,
    short_help="Run a copy of a broker; its own: ha-replica --help.",
)
def ha_replica(context: typer.Context) -> int:
    """Run a follower of a broker: -c FILE, -n ADDR (`kourou ha-replica --help`)."""
    return run_service("ha-replica", context.args)


@app.command(
    "filter-server",
    context_settings=PASSED_ON,
    short_help="Run a filter server; its own: filter-server --help.",
)
def filter_server(context: typer.Context) -> int:
    """Run consumers' filters beside a broker, in a jail (`kourou filter-server --help`)."""
    return run_service("filter-server", context.args)


@app.command(
    "spark-etl",
    context_settings=PASSED_ON,
    short_help="Topics as tables: spark-etl run|list|status|stop.",
)
def spark_etl(context: typer.Context) -> int:
    """Run the queries of a job file on Spark (`kourou spark-etl --help`)."""
    return run_service("spark-etl", context.args)


@app.command(
    context_settings=PASSED_ON,
    short_help="Run gateway and web console; its own: console --help.",
)
def console(context: typer.Context) -> int:
    """Run the HTTP gateway and the web console: -n ADDR (`kourou console --help`)."""
    return run_service("console", context.args)


@app.command(short_help="A copy of a live broker, or what is new since the last one.")
def backup(
    broker: Annotated[str, typer.Option("-b", "--broker", metavar="NAME", help="Whose log.")],
    to: Annotated[Path, typer.Option("--to", metavar="DIR", help="The folder of the backup.")],
    namesrv: NameServer = None,
    member: Annotated[
        int | None, typer.Option(min=0, help="Ask this brokerId; else the leader, else any.")
    ] = None,
    address: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Ask there, and no name server.")
    ] = "",
    json: JsonFlag = False,
) -> int:
    """Copy a broker's log up to what it has confirmed, and what was decided before it.

    Into a folder that has a backup of it, only what is new is copied; an interrupted run goes on.
    """
    from kourou.cli.backup.taking import Source, run_backup

    return run_backup(Source(broker, namesrv, member, address), to, as_json=json)


@app.command(short_help="A store made of a backup; no service runs.")
def restore(
    source: Annotated[Path, typer.Option("--from", metavar="DIR", help="The backup's folder.")],
    to: Annotated[Path, typer.Option("--to", metavar="STORE", help="The new storePathRootDir.")],
    json: JsonFlag = False,
) -> int:
    """Check a backup and make a store of it, which a broker opens and Spark reads."""
    from kourou.cli.backup.restoring import run_restore

    return run_restore(source, to, as_json=json)


@app.command(short_help="End the services you run on this machine, in peace.")
def shutdown(
    service: Annotated[
        str,
        typer.Argument(
            metavar="broker|ha-replica|namesrv|filter-server|console", help="Which service."
        ),
    ],
    pid: Annotated[
        list[int] | None, typer.Option(help="Only this process; may be repeated.")
    ] = None,
    wait: Annotated[float, typer.Option(min=0, help="For at most so many seconds.")] = 45.0,
    json: JsonFlag = False,
) -> int:
    """Tell every broker, name server or filter server of yours here to end, and wait for it.

    For no failed send: `kourou admin wipeWritePerm -b NAME` 40 s before.
    """
    from kourou.cli.shutdown import run_shutdown

    return run_shutdown(service, pids=pid or (), wait_s=wait, as_json=json)


@app.command(short_help="Name server, brokers and filter servers here, until Ctrl-C.")
def up(
    context: typer.Context,
    folder: Annotated[
        Path | None, typer.Option(help="Where the brokers store; else a folder in ~/kourou.")
    ] = None,
    brokers: Annotated[int, typer.Option(min=1, max=16, help="How many brokers.")] = 1,
    replicas: Annotated[int, typer.Option(min=0, max=4, help="So many followers a broker.")] = 0,
    raft: Annotated[
        int, typer.Option(help="Each broker a group of 3 or 5 that elects its leader.")
    ] = 0,
    filter_servers: Annotated[
        int | None,
        typer.Option(
            "--filter-servers", min=0, max=16, help="So many a broker; 1 where a jail can be built."
        ),
    ] = None,
    free_ports: Annotated[
        bool, typer.Option("--free-ports", help="Any free ports instead of 9876, 10911, …")
    ] = False,
    spark: Annotated[
        bool, typer.Option("--spark", help="The Spark pipeline, too: every topic to Parquet …")
    ] = False,
    jobs: Annotated[
        Path | None, typer.Option(help="Its job file; else spark-etl.toml in the folder.")
    ] = None,
    console: Annotated[
        bool, typer.Option("--console/--no-console", help="The web console, too.")
    ] = True,
    flights: Annotated[
        bool, typer.Option("--flights", help="Send and consume flights all the time, to look at.")
    ] = False,
    suite: Annotated[
        bool, typer.Option("--suite", help="As compose: two brokers, a copy each, and --spark.")
    ] = False,
    trace: TraceFlag = False,
) -> int:
    """Start a name server, brokers, their filter servers and a web console; Ctrl-C stops them.

    Where this machine lacks a layer of the filters' jail, all but the filter servers start. With
    --suite all of Kourou's services run that `docker compose up` starts, as processes; what it has
    of others (PostgreSQL, collector, Prometheus, Grafana, Jaeger) does not.
    """
    from kourou.cli.up import run_until_stopped

    if suite:
        brokers, replicas, spark = max(brokers, 2), 0 if raft else max(replicas, 1), True
    return run_until_stopped(
        folder,
        brokers=brokers,
        replicas=replicas,
        raft=raft,
        filter_servers=filter_servers,
        free_ports=free_ports,
        spark=spark,
        jobs=jobs,
        trace=trace,
        console=console,
        flights=flights,
        called_as=context.find_root().info_name or "kourou",
    )


# -- first minutes --------------------------------------------------------------------------------
@app.command(short_help="A year of flights, sent and consumed; everything is counted.")
def demo(
    context: typer.Context,
    plain: PlainFlag = False,
    json: Annotated[bool, typer.Option("--json", help="The verdict as JSON, last line.")] = False,
    events: Annotated[
        int | None, typer.Option(min=1_000, help="Only the first so many flights.")
    ] = None,
    keep: Annotated[
        Path | None, typer.Option(help="Keep the store and the logs in this new folder.")
    ] = None,
    spark: Annotated[
        bool | None,
        typer.Option(
            "--spark/--no-spark", help="The fifth act, on Spark; else where it is installed."
        ),
    ] = None,
    trace: TraceFlag = False,
) -> int:
    """A year of flights and its worst day, through real processes; everything is counted.

    Publish, consume, lose a member, look back; then order, retries, dead letters, delays and
    transactions; filters; and Spark, which makes tables of the flights while they are sent. Exit
    code 0 only if all numbers agree.
    """
    from kourou.cli.demo.tour import run_demo

    return run_demo(
        plain=plain,
        as_json=json,
        events_max=events,
        keep=keep,
        trace=trace,
        spark=spark,
        called_as=context.find_root().info_name or "kourou",
    )


@app.command(short_help="Send messages and print where each one went.")
def send(
    topic: Annotated[str, typer.Argument(help="The topic.")],
    bodies: Annotated[
        list[str] | None, typer.Argument(help="One message each; none: a line of stdin each.")
    ] = None,
    namesrv: NameServer = None,
    tag: Annotated[str | None, typer.Option(help="The tag of every message.")] = None,
    key: Annotated[list[str] | None, typer.Option(help="A key; may be repeated.")] = None,
    property_: Annotated[
        list[str] | None, typer.Option("--property", help="NAME=VALUE; may be repeated.")
    ] = None,
    json: JsonFlag = False,
) -> int:
    """Send messages and print where each one went.

    Exit code 0: all were sent, also where standard input was empty, which is told on stderr.
    """
    from kourou.cli.send import SendOptions, run_send

    options = SendOptions(tag=tag, keys=key or (), properties=property_ or (), as_json=json)
    return run_send(namesrv, topic, bodies, options)


@app.command(short_help="Print messages as they arrive; nobody's progress is touched.")
def tail(
    topic: Annotated[str, typer.Argument(help="The topic.")],
    namesrv: NameServer = None,
    tag: Annotated[str, typer.Option(help="Tags, like 'TagA || TagB'; * for all.")] = "*",
    first: Annotated[
        bool, typer.Option("--first", help="From the oldest message, not from now on.")
    ] = False,
    count: Annotated[int | None, typer.Option(min=1, help="Stop after so many.")] = None,
    json: JsonFlag = False,
) -> int:
    """Print messages as they arrive, without a group: nobody's progress is touched."""
    from kourou.cli.tail import TailOptions, run_tail

    return run_tail(namesrv, topic, TailOptions(tag=tag, first=first, count=count, as_json=json))


# -- looking back ---------------------------------------------------------------------------------
app.command("history", short_help="Who decided what, when and why, the newest first.")(history)
app.command("stateAt", short_help="What held at a time, or after an event.")(state_at)
app.command("undo", short_help="Take a decision back; that can be undone, too.")(undo)


app.add_typer(bench, name="bench")
app.add_typer(admin, name="admin")
app.add_typer(keys, name="keys", short_help="Make pairs of CURVE keys.")


# -- the project itself ---------------------------------------------------------------------------
@app.command("test")
def check(
    stages: Annotated[list[str] | None, typer.Argument(help="Only these stages.")] = None,
    slow: Annotated[
        bool, typer.Option("--slow", help="All rounds of fault tests; goes on where it stopped.")
    ] = False,
    soak: Annotated[bool, typer.Option("--soak", help="Tests that run for hours, too.")] = False,
    compose: Annotated[
        bool, typer.Option("--compose", help="Bring docker-compose.yml up for real, too.")
    ] = False,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Forget what a slow run has passed already.")
    ] = False,
    sim: Annotated[
        int | None, typer.Option(metavar="SEED", help="Simulations with this seed only.")
    ] = None,
    keyword: Annotated[str | None, typer.Option("-k", help="As pytest's -k.")] = None,
) -> int:
    """Run the project's checks; the last line counts them."""
    from kourou.cli.checks import Options, run_checks

    return run_checks(
        Options(
            stages=stages or (),
            slow=slow,
            soak=soak,
            compose=compose,
            fresh=fresh,
            simulation_seed=sim,
            keyword=keyword,
        )
    )


@app.command(context_settings=PASSED_ON, short_help="Ask a service's page whether it is well.")
def health(context: typer.Context) -> int:
    """Ask a service's page whether it is well: kourou health http://127.0.0.1:18081/readyz."""
    from kourou.cli.health import run_health

    return run_health(context.args)


@app.command(short_help="What this machine lacks, and what to type about it.")
def doctor() -> int:
    """Look at this machine: what Kourou needs, what is there, what to type where it is missing."""
    from kourou.cli.doctor import run_doctor

    return run_doctor()


@app.command(short_help="What makes Tab complete commands in your shell.")
def completion(
    shell: Annotated[str, typer.Argument(metavar="bash|zsh|fish", help="Which shell.")],
) -> int:
    """Print a script for your shell; its first line says where to keep it.

    For now only: `source <(kourou completion bash)`, `kourou completion fish | source`.
    """
    from kourou.cli.completion import print_script

    return print_script(shell)


@app.command()
def version() -> None:
    """Print the version."""
    from kourou import __version__

    print(f"kourou {__version__}")


def command_names() -> frozenset[str]:
    """The first words that `kourou` understands."""
    commands = (
        item.name or getattr(item.callback, "__name__", "") for item in app.registered_commands
    )
    groups = (item.name or "" for item in app.registered_groups)
    return frozenset((*commands, *groups))
