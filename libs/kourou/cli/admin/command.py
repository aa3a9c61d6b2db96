"""The common part of all admin commands: options and reporting.

Option letters and long names are mqadmin's; shorter long names are added where they exist.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, TypeVar, get_args, get_type_hints

import typer
import typer.core
import typer.models

if TYPE_CHECKING:
    from kourou.cli.admin.report import Report
    from kourou.sync import Client

_Work = TypeVar("_Work", bound=Callable[..., int])

GROUP = "kourou-admin"
READER_GROUP = "TOOLS_CONSUMER"
"""RocketMQ's own group for reading messages; every broker has it."""

TO_THE_END_MS = 2**62


class Switch(StrEnum):
    """mqadmin's `true` and `false` after an option; the option alone means `true`."""

    TRUE = "true"
    FALSE = "false"

    @property
    def on(self) -> bool:
        """The value as a bool."""
        return self is Switch.TRUE


class MqadminCommand(typer.core.TyperCommand):
    """A command that accepts `-o true` as well as `-o`."""

    switches: ClassVar[frozenset[str]] = frozenset()

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Append `true` to every switch without a value."""
        words: list[str] = []
        for place, word in enumerate(args):
            words.append(word)
            behind = args[place + 1] if place + 1 < len(args) else ""
            if word in self.switches and behind not in tuple(Switch):
                words.append(Switch.TRUE.value)
        return super().parse_args(ctx, words)


admin = typer.Typer(help="Admin commands (mqadmin-compatible).")
filters = typer.Typer(help="Manage the Python filters of consumer groups.")
_HOMES = {"": admin, "filter": filters}

COMMANDS: dict[str, Callable[..., int]] = {}
"""The function of every command by name; `filter list` is `list` of the family `filter`."""


def command(name: str, short_help: str | None = None) -> Callable[[_Work], _Work]:
    """Register a function as the command `kourou admin NAME`."""

    def make(work: _Work) -> _Work:
        COMMANDS[name] = work
        switches = frozenset(
            letter
            for kind, option in options_of(work).values()
            if Switch in (kind, *get_args(kind))
            for letter in names_of(option)
        )
        kind = type("SwitchingCommand", (MqadminCommand,), {"switches": switches})
        family, _, verb = name.rpartition(" ")
        return _HOMES[family].command(verb, cls=kind, short_help=short_help)(work)

    return make


def names_of(option: typer.models.OptionInfo) -> tuple[str, ...]:
    """An option's letter and names; in an annotation typer keeps the first one as its default."""
    first = (option.default,) if isinstance(option.default, str) else ()
    return (*first, *(option.param_decls or ()))


def options_of(work: Callable[..., int]) -> dict[str, tuple[Any, typer.models.OptionInfo]]:
    """The options of a command's function: argument -> (type, typer's option)."""
    found: dict[str, tuple[Any, typer.models.OptionInfo]] = {}
    for name, hint in get_type_hints(work, include_extras=True).items():
        kind, *said = get_args(hint) if hasattr(hint, "__metadata__") else (hint,)
        for one in said:
            if isinstance(one, typer.models.OptionInfo):
                found[name] = (kind, one)
    return found


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
Interval = Annotated[
    int | None, typer.Option("-i", "--interval", min=1, help="Repeat every N seconds.")
]
Rounds = Annotated[int | None, typer.Option("--rounds", min=1, help="Stop after N rounds.")]


def report(
    namesrv: str | None,
    ask: Callable[[Client], Report],
    *,
    as_json: bool,
    interval_s: int | None = None,
    rounds: int | None = None,
) -> int:
    """Open a client, run the request and show the report.

    With `interval_s` it repeats until Ctrl-C or for so many rounds. Returns the exit code: 1 if the
    report is marked as failed, else 0.
    """
    from kourou.sync import Client

    with Client(namesrv, group=GROUP) as client:
        found = ask(client)
        found.show(as_json=as_json)
        pause = threading.Event()  # never set: Ctrl-C ends the wait
        left = (rounds or 0) - 1
        while interval_s is not None and left != 0:
            pause.wait(interval_s)
            found = ask(client)
            found.show(as_json=as_json)
            left -= 1
        return 1 if found.failed else 0


def now_ms() -> int:
    """Milliseconds since 1970."""
    from kourou.clock import SystemClock

    return SystemClock().now_ms()


def moment(text: str) -> int:
    """Parse a time that an operator typed, into ms since 1970."""
    from kourou.cli.admin.moments import moment_ms

    return moment_ms(text, now_ms())
