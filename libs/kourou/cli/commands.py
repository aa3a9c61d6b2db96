"""The commands of `kourou` and their options."""

from __future__ import annotations

import copy
import os
from pathlib import Path
from typing import Annotated, Any

import typer
import typer.core

from kourou.cli.admin import brokers as broker_commands
from kourou.cli.admin import diagnosis, filters, groups, messages, replicas, topics
from kourou.cli.admin.command import admin
from kourou.cli.checkout import load
from kourou.cli.checks import STAGES
from kourou.cli.history import history, state_at, undo
from kourou.cli.keys import keys
from kourou.cli.quotas import quota
from kourou.cli.services import run_service
from kourou.cli.users import user
from kourou.errors import BadRequest, ConfigError
from kourou.model.names import TAIL_GROUP

ORDER = (
    *(
        "demo",
        "up",
        "send",
        "tail",
        "admin",
        "user",
        "quota",
        "history",
        "stateAt",
        "undo",
        "backup",
        "restore",
    ),
    *("namesrv", "broker", "ha-replica", "filter-server", "spark-etl", "console"),
    *("shutdown", "health", "keys"),
    *("bench", "doctor", "completion", "test", "version"),
)
"""The order of the help: commands for newcomers, for operators, then for the project itself."""


class ShownAsCalled(typer.core.TyperCommand):
    """A command whose help has examples; they start with what the user typed for `kourou`."""

    def format_help_text(self, ctx: Any, formatter: Any) -> None:
        """The help, with `./kourou` in a checkout."""
        self.help = (self.help or "").replace("kourou ", f"{ctx.find_root().info_name} ")
        super().format_help_text(ctx, formatter)


class InOrder(typer.core.TyperGroup):
    """A group that lists its commands in ORDER."""

    def list_commands(self, ctx: Any) -> list[str]:
        """All commands; those not in ORDER come last."""
        known = super().list_commands(ctx)
        return sorted(known, key=lambda name: ORDER.index(name) if name in ORDER else len(ORDER))


app = typer.Typer(
    name="kourou",
    cls=InOrder,
    help="A message broker suite, compatible with Apache RocketMQ 4.9 on the wire and on disk.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

BENCH_HELP = "Measure this machine: send, consume, filter and more."

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
        help="Name servers, host:port;host:port (default: NAMESRV_ADDR).",
    ),
]
JsonFlag = Annotated[bool, typer.Option("--json", help="JSON output, one object per line.")]
PlainFlag = Annotated[bool, typer.Option("--plain", help="Plain lines for a log, no animation.")]
TraceFlag = Annotated[
    bool,
    typer.Option(
        "--trace", help=("Export spans to OTEL_EXPORTER_OTLP_ENDPOINT (default: port 4318).")
    ),
]


# -- services -------------------------------------------------------------------------------------
def _add_service(name: str, short_help: str) -> None:
    """Add the command of a service, which reads the options itself, including --help."""

    def run(context: typer.Context) -> int:
        return run_service(name, context.args)

    app.command(name, context_settings=PASSED_ON, short_help=short_help)(run)


_add_service("namesrv", "Run a name server (options: namesrv --help).")
_add_service("broker", "Run a broker (options: broker --help).")
_add_service("ha-replica", "Run a broker's replica (options: ha-replica --help).")
_add_service("filter-server", "Run a filter server (options: filter-server --help).")
_add_service("spark-etl", "Run Spark queries: spark-etl run|list|status|stop.")
_add_service("console", "Run gateway and web console (options: console --help).")


@app.command(short_help="Back up a running broker, fully or incrementally.")
def backup(
    broker: Annotated[
        str, typer.Option("-b", "--broker", metavar="NAME", help=("The broker to back up."))
    ],
    to: Annotated[Path, typer.Option("--to", metavar="DIR", help="The backup folder.")],
    namesrv: NameServer = None,
    member: Annotated[
        int | None,
        typer.Option(
            min=0, help=("Copy from this brokerId (default: the leader, else any replica).")
        ),
    ] = None,
    address: Annotated[
        str,
        typer.Option(
            metavar="HOST:PORT", help=("Copy from this address; do not ask a name server.")
        ),
    ] = "",
    json: JsonFlag = False,
) -> int:
    """Copy a broker's log up to its committed position, and its earlier configuration.

    An existing backup in the folder is extended; an interrupted run is resumed.
    """
    from kourou.cli.backup.log_copy import BackupSource, run_backup

    return run_backup(BackupSource(broker, namesrv, member, address), to, as_json=json)


@app.command(short_help="Create a broker store from a backup.")
def restore(
    source: Annotated[Path, typer.Option("--from", metavar="DIR", help="The backup folder.")],
    to: Annotated[Path, typer.Option("--to", metavar="STORE", help="The new storePathRootDir.")],
    json: JsonFlag = False,
) -> int:
    """Check a backup and create a store from it, for a broker or for Spark."""
    from kourou.cli.backup.restore import run_restore

    return run_restore(source, to, as_json=json)


@app.command(cls=ShownAsCalled, short_help="Stop local services gracefully.")
def shutdown(
    service: Annotated[
        str,
        typer.Argument(
            metavar="broker|ha-replica|namesrv|filter-server|console", help="The service to stop."
        ),
    ],
    pid: Annotated[list[int] | None, typer.Option(help="Only this process (repeatable).")] = None,
    every: Annotated[
        bool, typer.Option("--all", help="All your processes of the service, of any folder.")
    ] = False,
    wait: Annotated[float, typer.Option(min=0, help="Seconds to wait for the end.")] = 45.0,
    json: JsonFlag = False,
) -> int:
    """Stop your local process of a service gracefully and wait until it ends.

    If several run, nothing is stopped: choose with --pid, or stop them all with --all.

    To avoid failed sends, run `kourou admin wipeWritePerm -b NAME` 40 s before.
    """
    from kourou.cli.services import run_shutdown

    return run_shutdown(service, pids=pid or (), every=every, wait_s=wait, as_json=json)


@app.command(short_help="Run name server, brokers and console here, until Ctrl-C.")
def up(
    context: typer.Context,
    folder: Annotated[
        Path | None, typer.Option(help="The folder of all data and logs (default: ~/kourou).")
    ] = None,
    brokers: Annotated[int, typer.Option(min=1, max=16, help="Number of brokers.")] = 1,
    replicas: Annotated[int, typer.Option(min=0, max=4, help="Replicas of each broker.")] = 0,
    raft: Annotated[int, typer.Option(help="Members of a Raft group for each broker: 3 or 5.")] = 0,
    filter_servers: Annotated[
        int | None,
        typer.Option(
            "--filter-servers",
            min=0,
            max=16,
            help="Filter servers of each broker (default: 1 if the sandbox works here).",
        ),
    ] = None,
    free_ports: Annotated[
        bool, typer.Option("--free-ports", help="Use any free ports instead of 9876, 10911, …")
    ] = False,
    spark: Annotated[
        bool, typer.Option("--spark", help="Start the Spark pipeline: every topic to Parquet.")
    ] = False,
    jobs: Annotated[
        Path | None,
        typer.Option(
            help="Job file of the Spark pipeline (default: spark-etl.toml in the folder)."
        ),
    ] = None,
    console: Annotated[
        bool, typer.Option("--console/--no-console", help="Start the web console.")
    ] = True,
    flights: Annotated[
        bool, typer.Option("--flights", help="Send and consume example flights all the time.")
    ] = False,
    suite: Annotated[
        bool,
        typer.Option("--suite", help="Like compose: two brokers, a replica of each, and --spark."),
    ] = False,
    trace: TraceFlag = False,
) -> int:
    """Start a name server, brokers, their filter servers and a web console; Ctrl-C stops them.

    If this machine lacks a layer of the filter sandbox, filter servers are not started. --suite
    starts all of Kourou's services of `docker compose up` as processes, but no PostgreSQL,
    collector, Prometheus, Grafana or Jaeger.
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


# -- getting started -------------------------------------------------------------------------------
@app.command(short_help="Run the demo: a year of flights in five acts.")
def demo(
    context: typer.Context,
    plain: PlainFlag = False,
    json: Annotated[
        bool, typer.Option("--json", help=("Print the result as JSON in the last line."))
    ] = False,
    events: Annotated[
        int | None, typer.Option(min=1_000, help="Number of flights (default: all).")
    ] = None,
    keep: Annotated[
        Path | None, typer.Option(help="Keep the store and the logs in this folder (must be new).")
    ] = None,
    spark: Annotated[
        bool | None,
        typer.Option(
            "--spark/--no-spark",
            help="Run act 5 on Spark (needs Java; default: if Spark is installed).",
        ),
    ] = None,
    trace: TraceFlag = False,
) -> int:
    """Run a year of flights through real processes and verify every count.

    Publish, consume, lose a consumer, replay; then order, retries, dead letters, delays and
    transactions; filters; and Spark, which makes tables of the flights while they are sent. Exit
    code 0 only if all numbers agree.
    """
    code: int = load("kourou_demo.tour", "kourou demo").run_demo(
        plain=plain,
        as_json=json,
        events_max=events,
        keep=keep,
        trace=trace,
        spark=spark,
        called_as=context.find_root().info_name or "kourou",
    )
    return code


@app.command(short_help="Send messages and print where each one is stored.")
def send(
    topic: Annotated[str, typer.Argument(help="The topic.")],
    bodies: Annotated[
        list[str] | None, typer.Argument(help="Message bodies; without any, one per line of stdin.")
    ] = None,
    namesrv: NameServer = None,
    tag: Annotated[str | None, typer.Option(help="The tag of every message.")] = None,
    key: Annotated[list[str] | None, typer.Option(help="A message key (repeatable).")] = None,
    property_: Annotated[
        list[str] | None, typer.Option("--property", help="A property, NAME=VALUE (repeatable).")
    ] = None,
    json: JsonFlag = False,
) -> int:
    """Send messages and print where each one is stored.

    Exit code 0: all messages were sent, or standard input was empty (reported on stderr).
    """
    from kourou.cli.send import SendOptions, run_send

    options = SendOptions(tag=tag, keys=key or (), properties=property_ or (), as_json=json)
    return run_send(namesrv, topic, bodies, options)


@app.command(short_help="Print messages as they arrive; no group's offsets change.")
def tail(
    topic: Annotated[str, typer.Argument(help="The topic.")],
    namesrv: NameServer = None,
    tag: Annotated[str, typer.Option(help="Tags, like 'TagA || TagB'; * for all.")] = "*",
    first: Annotated[
        bool, typer.Option("--first", help="Start at the oldest message instead of the newest.")
    ] = False,
    count: Annotated[int | None, typer.Option(min=1, help="Stop after this many messages.")] = None,
    group: Annotated[
        str, typer.Option(help="Read as this group; where rights are enforced it needs Sub.")
    ] = TAIL_GROUP,
    json: JsonFlag = False,
) -> int:
    """Print messages as they arrive, without changing the offsets of any group."""
    from kourou.cli.tail import TailOptions, run_tail

    options = TailOptions(tag=tag, first=first, count=count, group=group, as_json=json)
    return run_tail(namesrv, topic, options)


# -- history ---------------------------------------------------------------------------------------
app.command("history", short_help="Show configuration changes, newest first.")(history)
app.command("stateAt", short_help="Show the configuration at a time or after an event.")(state_at)
app.command("undo", short_help="Revert a configuration change.")(undo)


def _add_bench() -> None:
    """Add the group `bench` in a checkout; elsewhere a command that explains what is missing."""
    try:
        group = load("kourou_bench.commands", "kourou bench").bench
    except ConfigError as error:
        refusal = error

        @app.command("bench", context_settings=PASSED_ON, short_help=BENCH_HELP)
        def bench() -> int:
            """Measure this machine; needs a source checkout."""
            raise refusal
    else:
        app.add_typer(group, name="bench", short_help=BENCH_HELP)


def _add_admin() -> None:
    """Add the group `admin`; the help lists the commands of one module after those of another."""
    modules = (broker_commands, groups, messages, replicas, topics, diagnosis, filters)
    order = [one.__name__ for one in modules]
    admin.registered_commands.sort(
        key=lambda one: order.index(getattr(one.callback, "__module__", ""))
    )
    app.add_typer(admin, name="admin")


_add_bench()
_add_admin()
app.add_typer(user, name="user", short_help="Manage users, their rights and policies.")
app.add_typer(quota, name="quota", short_help="Limit users, topics and groups.")
app.add_typer(keys, name="keys", short_help="Create keys: CURVE pairs, and keys for secrets.")


# -- the project ----------------------------------------------------------------------------------
@app.command("test")
def check(
    stages: Annotated[
        list[str] | None,
        typer.Argument(help=f"Only these stages: {', '.join(stage.name for stage in STAGES)}."),
    ] = None,
    slow: Annotated[
        bool, typer.Option("--slow", help="Slow tests, a third of all rounds; resumes.")
    ] = False,
    soak: Annotated[
        bool, typer.Option("--soak", help="All rounds, and tests that run for hours.")
    ] = False,
    compose: Annotated[
        bool, typer.Option("--compose", help="Include tests that start docker-compose.yml.")
    ] = False,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Discard the results of an interrupted slow run.")
    ] = False,
    sim: Annotated[
        int | None, typer.Option(metavar="SEED", help="Run simulations with this seed only.")
    ] = None,
    keyword: Annotated[
        str | None, typer.Option("-k", help=("Only tests that match, as in pytest -k."))
    ] = None,
) -> int:
    """Run the project's tests and checks."""
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


@app.command(context_settings=PASSED_ON, short_help="Check a service's health page.")
def health(context: typer.Context) -> int:
    """Check a service's health page: kourou health http://127.0.0.1:18081/readyz."""
    from kourou.cli.health import run_health

    return run_health(context.args)


@app.command(short_help="Check this machine's requirements and print fixes.")
def doctor() -> int:
    """Check what Kourou needs on this machine, and print what to install."""
    from kourou.cli.doctor import run_doctor

    return run_doctor()


@app.command(cls=ShownAsCalled, short_help="Print the shell completion script.")
def completion(
    context: typer.Context,
    shell: Annotated[str, typer.Argument(metavar="bash|zsh|fish", help="The shell.")],
) -> int:
    """Print the completion script for your shell; its first line names the file to save it to.

    For this session: `source <(kourou completion bash)`, `kourou completion fish | source`.
    """
    return print_completion_script(shell, context.find_root().info_name or "kourou")


@app.command()
def version() -> None:
    """Print the version."""
    from kourou import __version__

    print(f"kourou {__version__}")


def app_for(name: str) -> typer.Typer:
    """The app, without the command groups that the known command `name` does not belong to.

    Building all groups takes a quarter of a second on a slow machine.
    """
    if name not in command_names():
        return app
    smaller = copy.copy(app)
    smaller.registered_groups = [one for one in app.registered_groups if one.name == name]
    return smaller


def command_names() -> frozenset[str]:
    """The names of all top-level commands."""
    commands = (
        item.name or getattr(item.callback, "__name__", "") for item in app.registered_commands
    )
    groups = (item.name or "" for item in app.registered_groups)
    return frozenset((*commands, *groups))


# -- completion ------------------------------------------------------------------------------------
COMPLETION_VARIABLE = "_KOUROU_COMPLETE"
"""Set by the shell's script when it requests completions; its value names the shell."""

COMPLETION_FILES = {
    "bash": "~/.local/share/bash-completion/completions/kourou",
    "zsh": "~/.zfunc/_kourou, with fpath+=~/.zfunc before compinit",
    "fish": "~/.config/fish/completions/kourou.fish",
}
"""By shell: the usual location of the completion script."""


def print_completion_script(shell: str, called_as: str = "kourou") -> int:
    """Print the script of a shell; raises BadRequest for unsupported shells."""
    from typer import completion

    if shell not in COMPLETION_FILES:
        raise BadRequest(
            f"no completion for {shell!r}", hint=f"supported: {', '.join(COMPLETION_FILES)}"
        )
    # An import in that module, not one of its exported names.
    make = completion.get_completion_script  # type: ignore[attr-defined]  # see above
    script = make(prog_name="kourou", complete_var=COMPLETION_VARIABLE, shell=shell)
    print(
        f"# To have it always: {called_as} completion {shell} > {COMPLETION_FILES[shell]}\n{script}"
    )
    return 0


def prepare_completion() -> None:
    """If a shell requests completions, let the command line reply."""
    if COMPLETION_VARIABLE in os.environ:
        from typer import completion

        # Typer calls this itself only if the app has its two completion options.
        completion.completion_init()  # type: ignore[attr-defined]  # not an exported name
