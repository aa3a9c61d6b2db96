"""`kourou admin filter …`: the commands for Python filters, and their options."""

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
"""Messages per dry run, as in kourou.model.limits; that module is not imported for the help."""

OneGroup = Annotated[
    str,
    typer.Option("-g", "--group", "--groupName", "--consumerGroup", help="Only this group."),
]
Name = Annotated[str, typer.Option("-f", "--filter", help="The name of the filter.")]
OneName = Annotated[str, typer.Option("-f", "--filter", help="Only filters with this name.")]
Version = Annotated[int | None, typer.Option("-v", "--version", min=1, help="The version.")]
Reason = Annotated[str, typer.Option("--reason", help="The reason, kept with the event.")]
Source = Annotated[str, typer.Argument(metavar="FILE", help="The Python file; - reads stdin.")]


@command("filter list", "List filters and their state.")
def filter_list(
    namesrv: NameServer = None,
    group: OneGroup = "",
    broker: OneBroker = None,
    json: Json = False,
) -> int:
    """List filters: group, versions, active version, policy, quarantine."""
    from kourou.cli.admin import filter_actions

    return report(
        namesrv,
        lambda client: filter_actions.filter_list(client, group, broker),
        as_json=json,
    )


@command("filter show", "Show a filter's versions or source (-s).")
def filter_show(
    group: Group,
    name: Name,
    namesrv: NameServer = None,
    source: Annotated[
        bool, typer.Option("-s", "--source", help="Print only the source of the version.")
    ] = False,
    version: Version = None,
    broker: OneBroker = None,
    json: Json = False,
) -> int:
    """Show the versions of a filter: author, active version, quarantine."""
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


@command("filter put", "Upload a version of a filter.")
def filter_put(
    file: Source,
    group: Group,
    name: Annotated[
        str | None,
        typer.Option("-f", "--filter", help=("The filter's name (default: the file's name).")),
    ] = None,
    namesrv: NameServer = None,
    author: Annotated[
        str | None, typer.Option("--author", help="The author (default: you).")
    ] = None,
    note: Annotated[str, typer.Option("--note", help="A note about the change.")] = "",
    disabled: Annotated[
        bool, typer.Option("--disabled", help="Do not run it before `filter enable`.")
    ] = False,
    broker: OneBroker = None,
    cluster: OneCluster = None,
    json: Json = False,
) -> int:
    """Upload a version of a filter; an identical source keeps its version."""
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
    """Change one filter: group, name, broker, cluster."""
    from kourou.cli.admin.filter_actions import Chosen

    return report(namesrv, lambda client: work(client, Chosen(*chosen)), as_json=as_json)


@command("filter enable", "Enable a version of a filter.")
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
    """Enable a version of a filter (default: the newest) and end its quarantine."""
    from kourou.cli.admin import filter_actions

    return _decide(
        namesrv,
        (group, name, broker, cluster),
        lambda client, chosen: filter_actions.filter_enable(client, chosen, version, reason),
        as_json=json,
    )


@command("filter disable", "Disable a filter; its group waits.")
def filter_disable(
    group: Group,
    name: Name,
    namesrv: NameServer = None,
    reason: Reason = "",
    broker: OneBroker = None,
    cluster: OneCluster = None,
    json: Json = False,
) -> int:
    """Disable a filter; its group receives no messages until a version is enabled."""
    from kourou.cli.admin import filter_actions

    return _decide(
        namesrv,
        (group, name, broker, cluster),
        lambda client, chosen: filter_actions.filter_disable(client, chosen, reason),
        as_json=json,
    )


@command("filter rollback", "Enable the previous version of a filter.")
def filter_rollback(
    group: Group,
    name: Name,
    namesrv: NameServer = None,
    reason: Reason = "",
    broker: OneBroker = None,
    cluster: OneCluster = None,
    json: Json = False,
) -> int:
    """Enable the previous version of a filter."""
    from kourou.cli.admin import filter_actions

    return _decide(
        namesrv,
        (group, name, broker, cluster),
        lambda client, chosen: filter_actions.filter_rollback(client, chosen, reason),
        as_json=json,
    )


@command("filter policy", "Set the failure policy of a filter.")
def filter_policy(
    group: Group,
    name: Name,
    policy: Annotated[
        str,
        typer.Option(
            "-p", "--policy", metavar="hold|skip|pass", help="Wait, skip, or deliver unfiltered."
        ),
    ],
    namesrv: NameServer = None,
    reason: Reason = "",
    broker: OneBroker = None,
    cluster: OneCluster = None,
    json: Json = False,
) -> int:
    """Set the failure policy of a filter: hold, skip (and record) or pass the message."""
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


@command("filter try", "Dry run a filter on a topic's last messages.")
def filter_try(
    group: Group,
    topic: Topic,
    file: Annotated[
        str | None,
        typer.Argument(
            metavar="[FILE]",
            help=("The Python file to try; - reads stdin (default: the uploaded version)."),
        ),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option("-f", "--filter", help=("The filter's name (default: the file's name).")),
    ] = None,
    namesrv: NameServer = None,
    version: Version = None,
    count: Annotated[
        int, typer.Option("-c", "--count", min=1, max=TRIED_MAX, help="Number of messages.")
    ] = 100,
    broker: OneBroker = None,
    json: Json = False,
) -> int:
    """Dry run a filter on a topic's last messages; offsets do not change."""
    from kourou.cli.admin import filter_actions
    from kourou.errors import BadRequest

    if file is not None and version is not None:
        raise BadRequest("give either a file or an uploaded version, not both")
    if file is None and name is None:
        raise BadRequest("no filter was named", hint="a FILE, or -f NAME of one uploaded")
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


@command("filter stats", "Show filter counts, errors and cost.")
def filter_stats(
    namesrv: NameServer = None,
    group: OneGroup = "",
    name: OneName = "",
    broker: OneBroker = None,
    interval: Interval = None,
    rounds: Rounds = None,
    json: Json = False,
) -> int:
    """Show filter counts, errors and cost since the start of each filter server."""
    from kourou.cli.admin import filter_actions

    return report(
        namesrv,
        lambda client: filter_actions.filter_stats(client, group, name, broker),
        as_json=json,
        interval_s=interval,
        rounds=rounds,
    )
