"""Declares the commands of `kourou admin`, `user` and `quota`, and options of many commands.

A command is one function. Its first parameter is an open client; the others are the options of
mqadmin, annotated for typer; it returns a Report. The decorator adds the options that all commands
have, opens the client, and shows the report:

    @command("deleteTopic", "Delete a topic with queues and offsets.")
    def delete_topic(client: Client, topic: Topic, *, cluster: OneCluster = None) -> Report:

The help lists options in the order of the parameters, -n in place of the `*` (or last), and --json
at the end. Short options and long names are mqadmin's; shorter long names are added where they
exist.

The help imports all modules of commands. They therefore import the client library, which takes
longer than the rest of the help, inside their functions.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from enum import StrEnum
from inspect import Parameter, Signature, signature
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, TypeVar, get_args, get_type_hints

import typer
import typer.core
import typer.models

from kourou import operations
from kourou.cli.admin.report import Report
from kourou.errors import ConfigError

if TYPE_CHECKING:
    from kourou.sync import Client

_Work = TypeVar("_Work", bound=Callable[..., Report])

GROUP = "kourou-admin"


# -- options of many commands ---------------------------------------------------------------------


class Switch(StrEnum):
    """mqadmin's `true` and `false` after an option; the option alone means `true`."""

    TRUE = "true"
    FALSE = "false"

    @property
    def on(self) -> bool:
        """The value as a bool."""
        return self is Switch.TRUE


NameServer = Annotated[
    str | None,
    typer.Option(
        "-n",
        "--namesrv",
        "--namesrvAddr",
        metavar="ADDR",
        help="Name servers, host:port;… (default: NAMESRV_ADDR).",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="JSON output, one object per row.")]
Interval = Annotated[
    int | None, typer.Option("-i", "--interval", min=1, help="Repeat every N seconds.")
]
Rounds = Annotated[int | None, typer.Option("--rounds", min=1, help="Stop after N rounds.")]

Topic = Annotated[str, typer.Option("-t", "--topic", help="The topic.")]
OneTopic = Annotated[str | None, typer.Option("-t", "--topic", help="Only this topic.")]
Group = Annotated[
    str,
    typer.Option("-g", "--group", "--groupName", "--consumerGroup", help="The consumer group."),
]
Broker = Annotated[
    str,
    typer.Option(
        "-b", "--broker", "--brokerName", "--brokerAddr", help="The broker's name or address."
    ),
]
OneBroker = Annotated[
    str | None,
    typer.Option(
        "-b",
        "--broker",
        "--brokerName",
        "--brokerAddr",
        help="Only this broker, by name or address.",
    ),
]
OneCluster = Annotated[
    str | None, typer.Option("-c", "--cluster", "--clusterName", help="Only this cluster.")
]

TEXT = "<str>"
"""How the help shows the value of an option that is text; for options with a parser."""


def moment(text: str) -> int:
    """Parse a time that an operator typed, into ms since 1970.

    It is `now`, ms, RocketMQ's `yyyy-MM-dd#HH:mm:ss:SSS`, or ISO 8601. Times without a time zone
    are local.
    """
    from kourou.clock import SystemClock

    return moment_ms(str(text), SystemClock().now_ms())  # typer passes default values, too


def moment_ms(text: str, now_ms: int) -> int:
    """Parse such a time; `now_ms` is the time that `now` stands for."""
    from datetime import datetime

    text = text.strip()
    if text == "now":
        return now_ms
    if text.isascii() and text.isdigit():
        return int(text)
    try:
        if "#" in text:
            parsed = datetime.strptime(text, "%Y-%m-%d#%H:%M:%S:%f").astimezone()
        else:
            parsed = datetime.fromisoformat(text).astimezone()
    except ValueError:
        raise ConfigError(
            f"{text!r} is not a time",
            hint="write now, milliseconds, 2013-07-04T12:00 or 2013-07-04#12:00:00:000",
        ) from None
    return int(parsed.timestamp() * 1000)


# -- declaring commands ---------------------------------------------------------------------------


class MqadminCommand(typer.core.TyperCommand):
    """A command that accepts `-o true` as well as `-o`."""

    switches: ClassVar[frozenset[str]] = frozenset()

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Append `true` to every switch without a value."""
        words: list[str] = []
        for place, word in enumerate(args):
            words.append(word)
            following = args[place + 1] if place + 1 < len(args) else ""
            if word in self.switches and following not in tuple(Switch):
                words.append(Switch.TRUE.value)
        return super().parse_args(ctx, words)


admin = typer.Typer(help="Admin commands (mqadmin-compatible).")
_filter_group = typer.Typer(help="Manage the Python filters of consumer groups.")
admin.add_typer(_filter_group, name="filter", short_help="Manage Python filters (filter --help).")
user = typer.Typer(help="Manage users, their rights, and the access mode of brokers.")
quota = typer.Typer(help="Limit what users, topics and consumer groups may use of each broker.")
_token_group = typer.Typer(help="Manage the API tokens of users.")
user.add_typer(_token_group, name="token", short_help="Manage API tokens (token --help).")
_TYPERS = {
    "": admin,
    "filter": _filter_group,
    "user": user,
    "user token": _token_group,
    "quota": quota,
}

COMMANDS: dict[str, Callable[..., int]] = {}
"""What typer calls for each command, by name; `filter list` is `list` of the group `filter` of
`kourou admin`, `user list` that of `kourou user`, `quota list` that of `kourou quota`."""


def command(
    name: str,
    short_help: str | None = None,
    *,
    repeats: bool = False,
    interval_s: int | None = None,
) -> Callable[[_Work], _Work]:
    """Declare a function as the command `kourou admin NAME`; the function itself is unchanged.

    `user VERB` is the command `kourou user VERB`, `quota VERB` that of `kourou quota`. With
    `repeats` it also has -i/--interval (default: `interval_s`) and --rounds. Raises KeyError if the
    catalogue of operator verbs has no such command.
    """
    if name not in operations.COMMANDS:
        raise KeyError(f"kourou.operations has no verb for the command {name!r}")

    def declare(work: _Work) -> _Work:
        run = _with_common_options(work, repeats=repeats, interval_s=interval_s)
        COMMANDS[name] = run
        switches = frozenset(
            option_name
            for kind, option in options_of(run).values()
            if Switch in (kind, *get_args(kind))
            for option_name in names_of(option)
        )
        kind = type("SwitchingCommand", (MqadminCommand,), {"switches": switches})
        group, _, verb = name.rpartition(" ")
        _TYPERS[group].command(verb, cls=kind, short_help=short_help)(run)
        return work

    return declare


def _with_common_options(
    work: Callable[..., Report], *, repeats: bool, interval_s: int | None
) -> Callable[..., int]:
    """The function that typer calls: `work` with the common options in place of the client."""

    def run(**values: Any) -> int:
        common = {name: values.pop(name, None) for name in ("namesrv", "interval", "rounds")}
        as_json = values.pop("json")
        return run_command(lambda client: work(client, **values), as_json=as_json, **common)

    _, *own = signature(work).parameters.values()
    run.__module__, run.__doc__ = work.__module__, work.__doc__
    run.__annotations__ = {one.name: one.annotation for one in own}
    # The annotation of the client is left out: its module is not imported for the help.
    hints = get_type_hints(run, globalns=work.__globals__, include_extras=True)
    options = [
        Parameter(one.name, Parameter.KEYWORD_ONLY, default=one.default, annotation=hints[one.name])
        for one in own
    ]
    place = sum(one.kind is not Parameter.KEYWORD_ONLY for one in own)
    options.insert(place, _option("namesrv", NameServer, None))
    if repeats:
        options += [_option("interval", Interval, interval_s), _option("rounds", Rounds, None)]
    options.append(_option("json", Json, False))
    run.__signature__ = Signature(options)  # type: ignore[attr-defined]  # read by inspect
    run.__annotations__ = {one.name: one.annotation for one in options}
    return run


def _option(name: str, annotation: Any, default: Any) -> Parameter:
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def names_of(option: typer.models.OptionInfo) -> tuple[str, ...]:
    """An option's short and long names; in an annotation typer keeps the first as its default."""
    first = (option.default,) if isinstance(option.default, str) else ()
    return (*first, *(option.param_decls or ()))


def options_of(run: Callable[..., int]) -> dict[str, tuple[Any, typer.models.OptionInfo]]:
    """The options of a command: parameter -> (type, typer's option)."""
    found: dict[str, tuple[Any, typer.models.OptionInfo]] = {}
    for name, hint in get_type_hints(run, include_extras=True).items():
        kind, *metadata = get_args(hint) if hasattr(hint, "__metadata__") else (hint,)
        for one in metadata:
            if isinstance(one, typer.models.OptionInfo):
                found[name] = (kind, one)
    return found


def run_command(
    work: Callable[[Client], Report],
    *,
    namesrv: str | None,
    as_json: bool,
    interval: int | None = None,
    rounds: int | None = None,
) -> int:
    """Open a client, run the command, and show its report.

    With an interval in seconds it repeats until Ctrl-C or for so many rounds. Returns the exit
    code: 1 if the last report is marked as failed, else 0.
    """
    from kourou.sync import Client

    with Client(namesrv, group=GROUP) as client:
        report = work(client)
        report.show(as_json=as_json)
        pause = threading.Event()  # never set: Ctrl-C ends the wait
        left = (rounds or 0) - 1
        while interval is not None and left != 0:
            pause.wait(interval)
            report = work(client)
            report.show(as_json=as_json)
            left -= 1
        return 1 if report.failed else 0
