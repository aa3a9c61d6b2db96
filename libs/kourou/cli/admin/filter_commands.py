"""`kourou admin filter …`: the commands about filters in Python, and their arguments.

Lives here: names and letters. May not live here: what a command does
(kourou.cli.admin.filter_actions), which is imported when one is called.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from kourou.cli.admin.options import (
    Group,
    Interval,
    Json,
    NameServer,
    OneBroker,
    OneCluster,
    Rounds,
    Topic,
    command,
    report,
)

if TYPE_CHECKING:
    from kourou.cli.admin.filter_actions import Chosen
    from kourou.cli.admin.report import Report
    from kourou.sync import Client

TRIED_MAX = 1_024
"""Messages of one dry run, as kourou.model.limits has it; that module is not loaded for a help."""

OneGroup = Annotated[
    str,
    typer.Option("-g", "--group", "--groupName", "--consumerGroup", help="Only of this group."),
]
Name = Annotated[str, typer.Option("-f", "--filter", help="The name of the filter.")]
OneName = Annotated[str, typer.Option("-f", "--filter", help="Only the filters of this name.")]
Version = Annotated[int | None, typer.Option("-v", "--version", min=1, help="Which version.")]
Reason = Annotated[str, typer.Option("--reason", help="Why; it is kept with the event.")]
Source = Annotated[str, typer.Argument(metavar="FILE", help="The Python; - reads stdin.")]


@command("filter list", "Which groups have which filters, and what runs.")
def filter_list(
    namesrv: NameServer = None,
    group: OneGroup = "",
    broker: OneBroker = None,
    json: Json = False,
) -> int:
    """The filters of all groups, or of one: versions, which one runs, policy, quarantine."""
    from kourou.cli.admin import filter_actions

    return report(
        namesrv,
        lambda client: filter_actions.filter_list(client, group, broker),
        as_json=json,
    )


@command("filter show", "The versions of a filter; or with -s the Python of one.")
def filter_show(
    group: Group,
    name: Name,
    namesrv: NameServer = None,
    source: Annotated[
        bool, typer.Option("-s", "--source", help="The Python of the version, and nothing else.")
    ] = False,
    version: Version = None,
    broker: OneBroker = None,
    json: Json = False,
) -> int:
    """The versions of a filter, who uploaded them, what runs, and why one may not."""
    from kourou.cli.admin import filter_actions
    from kourou.errors import BadRequest

    if version is not None and not source:
        raise BadRequest("-v chooses whose Python is shown", hint="add -s")
    if source:
        return report(
            namesrv,
            lambda client: filter_actions.filter_source(client, group, name, version, broker),
            as_json=json,
        )
    return report(
        namesrv,
        lambda client: filter_actions.filter_show(client, group, name, broker),
        as_json=json,
    )


@command("filter put", "Upload a version of a filter, from a file.")
def filter_put(
    file: Source,
    group: Group,
    name: Annotated[
        str | None, typer.Option("-f", "--filter", help="Its name; the file's if left out.")
    ] = None,
    namesrv: NameServer = None,
    author: Annotated[
        str | None, typer.Option("--author", help="Whose it is; you, if left out.")
    ] = None,
    note: Annotated[str, typer.Option("--note", help="What is new in it.")] = "",
    disabled: Annotated[
        bool, typer.Option("--disabled", help="It does not run before `filter enable`.")
    ] = False,
    broker: OneBroker = None,
    cluster: OneCluster = None,
    json: Json = False,
) -> int:
    """Upload a version of a filter; what is there already keeps its version."""
    from kourou.cli.admin import filter_actions

    text = filter_actions.read_source(file)
    known_as = filter_actions.name_for(file) if name is None else name
    chosen = filter_actions.Chosen(group, known_as, broker, cluster)
    by = filter_actions.whoever_asks() if author is None else author
    return report(
        namesrv,
        lambda client: filter_actions.filter_put(
            client, chosen, text, author=by, note=note, enable=not disabled
        ),
        as_json=json,
    )


def _decide(
    namesrv: str | None,
    chosen: tuple[str, str, str | None, str | None],
    work: Callable[[Client, Chosen], Report],
    *,
    as_json: bool,
) -> int:
    """Decide something about one filter: group, name, broker, cluster."""
    from kourou.cli.admin.filter_actions import Chosen

    return report(namesrv, lambda client: work(client, Chosen(*chosen)), as_json=as_json)


@command("filter enable", "Let a version of a filter run, the newest or one.")
def filter_enable(
    group: Group,
    name: Name,
    namesrv: NameServer = None,
    version: Version = None,
    reason: Reason = "",
    broker: OneBroker = None,
    cluster: OneCluster = None,
    json: Json = False,
) -> int:
    """Let a version of a filter run, the newest if none is named; its quarantine is over then."""
    from kourou.cli.admin import filter_actions

    return _decide(
        namesrv,
        (group, name, broker, cluster),
        lambda client, chosen: filter_actions.filter_enable(client, chosen, version, reason),
        as_json=json,
    )


@command("filter disable", "Let no version of a filter run; its group waits.")
def filter_disable(
    group: Group,
    name: Name,
    namesrv: NameServer = None,
    reason: Reason = "",
    broker: OneBroker = None,
    cluster: OneCluster = None,
    json: Json = False,
) -> int:
    """Let no version of a filter run: its group gets nothing until one is enabled again."""
    from kourou.cli.admin import filter_actions

    return _decide(
        namesrv,
        (group, name, broker, cluster),
        lambda client, chosen: filter_actions.filter_disable(client, chosen, reason),
        as_json=json,
    )


@command("filter rollback", "Let the version run that ran before.")
def filter_rollback(
    group: Group,
    name: Name,
    namesrv: NameServer = None,
    reason: Reason = "",
    broker: OneBroker = None,
    cluster: OneCluster = None,
    json: Json = False,
) -> int:
    """Let the version of a filter run that was enabled before this one."""
    from kourou.cli.admin import filter_actions

    return _decide(
        namesrv,
        (group, name, broker, cluster),
        lambda client, chosen: filter_actions.filter_rollback(client, chosen, reason),
        as_json=json,
    )


@command("filter policy", "What becomes of messages that a filter cannot judge.")
def filter_policy(
    group: Group,
    name: Name,
    policy: Annotated[
        str,
        typer.Option(
            "-p", "--policy", metavar="hold|skip|pass", help="Wait, pass over, or let through."
        ),
    ],
    namesrv: NameServer = None,
    reason: Reason = "",
    broker: OneBroker = None,
    cluster: OneCluster = None,
    json: Json = False,
) -> int:
    """What becomes of a message that a filter cannot judge: hold, skip with a record, or pass."""
    from kourou.cli.admin import filter_actions

    return _decide(
        namesrv,
        (group, name, broker, cluster),
        lambda client, chosen: filter_actions.filter_policy(client, chosen, policy, reason),
        as_json=json,
    )


@command("filter delete")
def filter_delete(
    group: Group,
    name: Name,
    namesrv: NameServer = None,
    reason: Reason = "",
    broker: OneBroker = None,
    cluster: OneCluster = None,
    json: Json = False,
) -> int:
    """Delete a filter with all its versions; the history keeps them."""
    from kourou.cli.admin import filter_actions

    return _decide(
        namesrv,
        (group, name, broker, cluster),
        lambda client, chosen: filter_actions.filter_delete(client, chosen, reason),
        as_json=json,
    )


@command("filter try", "What a filter says of a topic's last messages, and its cost.")
def filter_try(
    group: Group,
    topic: Topic,
    file: Annotated[
        str | None,
        typer.Argument(metavar="[FILE]", help="Python to try; - is stdin; else what is uploaded."),
    ] = None,
    name: Annotated[
        str | None, typer.Option("-f", "--filter", help="Its name; the file's if left out.")
    ] = None,
    namesrv: NameServer = None,
    version: Version = None,
    count: Annotated[
        int, typer.Option("-c", "--count", min=1, max=TRIED_MAX, help="Of so many messages.")
    ] = 100,
    broker: OneBroker = None,
    json: Json = False,
) -> int:
    """Say what a filter would say of a topic's last messages; nobody's progress is touched."""
    from kourou.cli.admin import filter_actions
    from kourou.errors import BadRequest

    if file is not None and version is not None:
        raise BadRequest("either a file or an uploaded version is tried, not both")
    if file is None and name is None:
        raise BadRequest("what shall be tried?", hint="a FILE, or -f NAME of one uploaded")
    text = "" if file is None else filter_actions.read_source(file)
    known_as = filter_actions.name_for(file or "") if name is None else name
    return report(
        namesrv,
        lambda client: filter_actions.filter_try(
            client,
            (group, known_as, topic),
            source=text,
            version=version,
            count=count,
            broker=broker,
        ),
        as_json=json,
    )


@command("filter stats", "Messages seen and passed, errors, cost, by filter server.")
def filter_stats(
    namesrv: NameServer = None,
    group: OneGroup = "",
    name: OneName = "",
    broker: OneBroker = None,
    interval: Interval = None,
    rounds: Rounds = None,
    json: Json = False,
) -> int:
    """What filters did since their servers started: at each of them, and in all."""
    from kourou.cli.admin import filter_actions

    return report(
        namesrv,
        lambda client: filter_actions.filter_stats(client, group, name, broker),
        as_json=json,
        interval_s=interval,
        rounds=rounds,
    )
