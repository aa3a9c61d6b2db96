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
from kourou.cli.history import history, state_at, undo
from kourou.cli.services import run_service

ORDER = (
    *("demo", "up", "send", "tail", "admin", "history", "stateAt", "undo"),
    *("namesrv", "broker", "shutdown", "health", "bench", "doctor", "test", "version"),
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


@app.command(short_help="End the brokers or name servers you run on this machine, in peace.")
def shutdown(
    service: Annotated[str, typer.Argument(metavar="broker|namesrv", help="Which service.")],
    pid: Annotated[
        list[int] | None, typer.Option(help="Only this process; may be repeated.")
    ] = None,
    wait: Annotated[float, typer.Option(min=0, help="For at most so many seconds.")] = 45.0,
    json: JsonFlag = False,
) -> int:
    """Tell every broker (or name server) of yours on this machine to finish and end; wait for it.

    For no failed send: `kourou admin wipeWritePerm -b NAME` 40 s before.
    """
    from kourou.cli.shutdown import run_shutdown

    return run_shutdown(service, pids=pid or (), wait_s=wait, as_json=json)


@app.command(short_help="Name server and brokers on this machine, until Ctrl-C.")
def up(
    context: typer.Context,
    folder: Annotated[
        Path | None, typer.Option(help="Where the brokers store; else a folder in ~/kourou.")
    ] = None,
    brokers: Annotated[int, typer.Option(min=1, max=16, help="How many brokers.")] = 1,
    free_ports: Annotated[
        bool, typer.Option("--free-ports", help="Any free ports instead of 9876, 10911, …")
    ] = False,
    trace: TraceFlag = False,
) -> int:
    """Start a name server and brokers on this machine; Ctrl-C drains and stops them."""
    from kourou.cli.up import run_until_stopped

    return run_until_stopped(
        folder,
        brokers=brokers,
        free_ports=free_ports,
        trace=trace,
        called_as=context.find_root().info_name or "kourou",
    )


# -- first minutes --------------------------------------------------------------------------------
@app.command(short_help="A year of flights, sent and consumed; everything is counted.")
def demo(
    plain: PlainFlag = False,
    json: Annotated[bool, typer.Option("--json", help="The verdict as JSON, last line.")] = False,
    events: Annotated[
        int | None, typer.Option(min=1_000, help="Only the first so many flights.")
    ] = None,
    keep: Annotated[
        Path | None, typer.Option(help="Keep the store and the logs in this new folder.")
    ] = None,
    trace: TraceFlag = False,
) -> int:
    """A year of flights and its worst day, through real processes; everything is counted.

    Publish, consume, lose a member, look back; then order, retries, dead letters, delays and
    transactions. Exit code 0 only if all numbers agree.
    """
    from kourou.cli.demo.tour import run_demo

    return run_demo(plain=plain, as_json=json, events_max=events, keep=keep, trace=trace)


@app.command()
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
    """Send messages and print where each one went."""
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


# -- figures --------------------------------------------------------------------------------------
bench = typer.Typer(
    help="Measure this machine: send, consume, latency. Prints; never judges.",
    invoke_without_command=True,
)
app.add_typer(bench, name="bench")
app.add_typer(admin, name="admin")

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
        bool, typer.Option("--peers", help="Beside RocketMQ, NATS and Redis, as one table.")
    ] = False,
    only: Annotated[
        str, typer.Option(help="(with --peers) Rows, like send-64; all if empty.")
    ] = "",
    among: Annotated[
        str, typer.Option(help="(with --peers) Like rocketmq,redis; all if empty.")
    ] = "",
    rounds: Annotated[int, typer.Option(min=1, help="(with --peers) How often.")] = 3,
    seconds: Annotated[float, typer.Option(min=0.1, help="(with --peers) Of a measurement.")] = 5.0,
    warm_seconds: Annotated[float, typer.Option(min=0.0, help="(with --peers) Work before.")] = 5,
    backlog: Annotated[int, typer.Option(min=1_000, help="(with --peers) To consume.")] = 1_000_000,
    size: Annotated[
        int, typer.Option(min=16, max=1_000_000, help="(with --peers) Of a body, bytes.")
    ] = 1_024,
    huge: Annotated[
        bool, typer.Option("--huge", help="(with --peers) Rows of 50 M messages and 10 GB, too.")
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

    scale = Scale(seconds=seconds, warm_seconds=warm_seconds, size=size, backlog=backlog)
    return run_peers(PeerOptions(names(only), names(among), rounds, scale, huge, as_json=json))


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
