"""`kourou admin filter …`: the commands for Python filters."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kourou.cli.admin.command import TEXT, Group, OneBroker, OneCluster, Topic, command
from kourou.cli.admin.report import Report, local_time, printable_lines
from kourou.errors import BadRequest, ConfigError, Rejected
from kourou.model.filter import FilterPolicy, check_filter_name
from kourou.model.limits import (
    FILTER_AUTHOR_LENGTH_MAX,
    FILTER_SOURCE_BYTES_MAX,
    FILTER_TRIED_MESSAGES_MAX,
)
from kourou.telemetry.logs import printable

if TYPE_CHECKING:
    from kourou.model.filter import FilterState
    from kourou.protocol.bodies.filter_bodies import FilterFigures, FilterTrial
    from kourou.sync import Client

STDIN = "-"
ALL_SERVERS = "all"
"""The name of the row with the sums over all filter servers."""


# -- options --------------------------------------------------------------------------------------


def read_source(file: str) -> str:
    """Read the Python source from a file or stdin; raises ConfigError if it cannot be a filter."""
    if file == STDIN:
        shown, data = "stdin", sys.stdin.buffer.read(FILTER_SOURCE_BYTES_MAX + 1)
    else:
        shown, data = file, _read(Path(file))
    if len(data) > FILTER_SOURCE_BYTES_MAX:
        raise ConfigError(
            f"{shown} has more than {FILTER_SOURCE_BYTES_MAX:,} bytes",
            hint="shorten the filter",
        )
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{shown} is not UTF-8 at byte {error.start}") from error
    if not text.strip():
        raise ConfigError(f"{shown} is empty", hint="def match(message, context): return True")
    return text


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as opened:
            return opened.read(FILTER_SOURCE_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error


def default_name(file: str) -> str:
    """The name of a filter that is uploaded from a file without -f: the file's name."""
    if file == STDIN:
        raise BadRequest("what comes from stdin has no name", hint="-f NAME")
    return check_filter_name(Path(file).stem)


def current_user() -> str:
    """The user of this command as `ann@till-7`, as far as the system knows it."""
    import getpass
    import socket

    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # an account without a name, as in many containers
        user = "somebody"
    return f"{user}@{socket.gethostname()}"[:FILTER_AUTHOR_LENGTH_MAX]


OneGroup = Annotated[
    str,
    typer.Option("-g", "--group", "--groupName", "--consumerGroup", help="Only this group."),
]
Name = Annotated[
    str,
    typer.Option(
        "-f", "--filter", parser=check_filter_name, metavar=TEXT, help="The name of the filter."
    ),
]
NameOrDefault = Annotated[
    str | None,
    typer.Option(
        "-f",
        "--filter",
        parser=check_filter_name,
        metavar=TEXT,
        help=("The filter's name (default: the file's name)."),
    ),
]
OneName = Annotated[str, typer.Option("-f", "--filter", help="Only filters with this name.")]
Version = Annotated[int | None, typer.Option("-v", "--version", min=1, help="The version.")]
Reason = Annotated[str, typer.Option("--reason", help="The reason, kept with the event.")]


# -- showing --------------------------------------------------------------------------------------


@command("filter list", "List filters and their state.")
def filter_list(client: Client, *, group: OneGroup = "", broker: OneBroker = None) -> Report:
    """List filters: group, versions, active version, policy, quarantine."""
    rows = [
        (
            name,
            one.group,
            one.name,
            len(one.versions),
            one.newest,
            one.active,
            one.policy.value,
            one.status,
            one.skipped,
        )
        for name, one in _each(client.admin.filters.list(group, broker=broker))
    ]
    columns = (
        *("broker", "group", "filter", "versions", "newest", "active", "policy"),
        *("state", "skipped"),
    )
    remarks = [] if rows else ["no filters"]
    for where, servers in sorted(client.admin.filters.servers(broker=broker).items()):
        online = (
            ", ".join(servers)
            or "no filter server is online: groups with a filter wait at this broker"
        )
        remarks.append(f"filter servers of {where}: {online}")
    return Report(columns, rows, remarks)


@command("filter show", "Show a filter's versions or source (-s).")
def filter_show(
    client: Client,
    group: Group,
    name: Name,
    *,
    source: Annotated[
        bool, typer.Option("-s", "--source", help="Print only the source of the version.")
    ] = False,
    version: Version = None,
    broker: OneBroker = None,
) -> Report:
    """Show the versions of a filter: author, active version, quarantine."""
    if source:
        stored = client.admin.filters.source(group, name, version, broker=broker)
        return SourceReport(stored.version, stored.source or "")
    if version is not None:
        raise BadRequest("-v chooses whose Python is shown", hint="add -s")
    filters = list(_each(client.admin.filters.list(group, name, broker=broker)))
    if not filters:
        raise Rejected(
            f"group {group} has no filter {name!r}", hint="kourou admin filter list names them"
        )
    rows = [
        (
            where,
            each.version,
            each.version == one.active,
            one.quarantined.get(each.version) is not None,
            local_time(each.uploaded_ms),
            each.author,
            each.size_bytes,
            each.sha256,
            each.note,
        )
        for where, one in filters
        for each in one.versions
    ]
    columns = (
        *("broker", "version", "active", "quarantined", "uploaded", "author"),
        *("bytes", "sha256", "note"),
    )
    remarks = []
    for where, one in filters:
        remarks.append(f"{where}: {one.status}, policy {one.policy.value}, {one.skipped} skipped")
        remarks += [
            f"{where}: version {number} is quarantined: {printable(reason)}"
            for number, reason in sorted(one.quarantined.items())
        ]
    remarks.append(f"who decided what: kourou history filter/{printable(group)}/{printable(name)}")
    return Report(columns, rows, remarks)


class SourceReport(Report):
    """A report that prints text unchanged, so that it can be saved to a file and uploaded again."""

    def __init__(self, version: int, text: str) -> None:
        super().__init__(("version", "source"), [(version, text)])
        self._text = text

    def show(self, *, as_json: bool) -> None:
        """Print only the text; on a terminal, control characters are escaped."""
        if as_json:
            super().show(as_json=True)
            return
        text = self._text if not sys.stdout.isatty() else printable_lines(self._text)
        sys.stdout.write(text if text.endswith("\n") else f"{text}\n")


# -- changing -------------------------------------------------------------------------------------


@command("filter put", "Upload a version of a filter.")
def filter_put(
    client: Client,
    file: Annotated[str, typer.Argument(metavar="FILE", help="The Python file; - reads stdin.")],
    group: Group,
    name: NameOrDefault = None,
    *,
    author: Annotated[
        str | None, typer.Option("--author", help="The author (default: you).")
    ] = None,
    note: Annotated[str, typer.Option("--note", help="A note about the change.")] = "",
    disabled: Annotated[
        bool, typer.Option("--disabled", help="Do not run it before `filter enable`.")
    ] = False,
    broker: OneBroker = None,
    cluster: OneCluster = None,
) -> Report:
    """Upload a version of a filter; an identical source keeps its version."""
    source = read_source(file)
    done = client.admin.filters.put(
        group,
        default_name(file) if name is None else name,
        source,
        note=note,
        author=current_user() if author is None else author,
        enable=not disabled,
        broker=broker,
        cluster=cluster,
    )
    report = _changes(done)
    for where, change in sorted(done.items()):
        if not disabled and change.active != change.version:
            why = "" if change.quarantined is None else f" (quarantine: {change.quarantined})"
            report.remarks.append(
                f"{where}: version {change.version} is disabled{printable(why)}; "
                "`kourou admin filter enable` enables it"
            )
    return report


@command("filter enable", "Enable a version of a filter.")
def filter_enable(
    client: Client,
    group: Group,
    name: Name,
    *,
    version: Version = None,
    reason: Reason = "",
    broker: OneBroker = None,
    cluster: OneCluster = None,
) -> Report:
    """Enable a version of a filter (default: the newest) and end its quarantine."""
    return _changes(
        client.admin.filters.enable(
            group, name, version, reason=reason, broker=broker, cluster=cluster
        )
    )


@command("filter disable", "Disable a filter; its group waits.")
def filter_disable(
    client: Client,
    group: Group,
    name: Name,
    *,
    reason: Reason = "",
    broker: OneBroker = None,
    cluster: OneCluster = None,
) -> Report:
    """Disable a filter; its group receives no messages until a version is enabled."""
    return _changes(
        client.admin.filters.disable(group, name, reason=reason, broker=broker, cluster=cluster)
    )


@command("filter rollback", "Enable the previous version of a filter.")
def filter_rollback(
    client: Client,
    group: Group,
    name: Name,
    *,
    reason: Reason = "",
    broker: OneBroker = None,
    cluster: OneCluster = None,
) -> Report:
    """Enable the previous version of a filter."""
    return _changes(
        client.admin.filters.rollback(group, name, reason=reason, broker=broker, cluster=cluster)
    )


@command("filter policy", "Set the failure policy of a filter.")
def filter_policy(
    client: Client,
    group: Group,
    name: Name,
    policy: Annotated[
        str,
        typer.Option(
            "-p", "--policy", metavar="hold|skip|pass", help="Wait, skip, or deliver unfiltered."
        ),
    ],
    *,
    reason: Reason = "",
    broker: OneBroker = None,
    cluster: OneCluster = None,
) -> Report:
    """Set the failure policy of a filter: hold, skip (and record) or pass the message."""
    known = [one.value for one in FilterPolicy]
    target = policy.strip().lower()
    if target not in known:
        raise BadRequest(f"unknown policy {policy!r}", hint=", ".join(known))
    done = client.admin.filters.set_policy(
        group, name, target, reason=reason, broker=broker, cluster=cluster
    )
    report = _changes(done)
    report.remarks.append(f"if {name} fails on a message: {FilterPolicy(target).meaning}")
    if target != FilterPolicy.PASS:  # a quarantine outlives the policy that caused it
        report.remarks += [
            f"{where}: version {change.version} is quarantined ({printable(change.quarantined)}), "
            "so its group still waits; `kourou admin filter enable` ends the quarantine"
            for where, change in sorted(done.items())
            if change.quarantined is not None
        ]
    return report


@command("filter delete")
def filter_delete(
    client: Client,
    group: Group,
    name: Name,
    *,
    reason: Reason = "",
    broker: OneBroker = None,
    cluster: OneCluster = None,
) -> Report:
    """Delete a filter with all its versions; the history keeps them."""
    done = client.admin.filters.delete(group, name, reason=reason, broker=broker, cluster=cluster)
    return Report(
        remarks=[f"{where}: the filter {name} of {group} was deleted" for where in sorted(done)]
    )


def _changes(done: Mapping[str, Any]) -> Report:
    rows = [(where, one.version, one.active, one.created) for where, one in sorted(done.items())]
    return Report(("broker", "version", "active", "created"), rows)


# -- dry runs and statistics ----------------------------------------------------------------------


@command("filter try", "Dry run a filter on a topic's last messages.")
def filter_try(
    client: Client,
    group: Group,
    topic: Topic,
    file: Annotated[
        str | None,
        typer.Argument(
            metavar="[FILE]",
            help=("The Python file to try; - reads stdin (default: the uploaded version)."),
        ),
    ] = None,
    name: NameOrDefault = None,
    *,
    version: Version = None,
    count: Annotated[
        int,
        typer.Option(
            "-c", "--count", min=1, max=FILTER_TRIED_MESSAGES_MAX, help="Number of messages."
        ),
    ] = 100,
    broker: OneBroker = None,
) -> Report:
    """Dry run a filter on a topic's last messages; offsets do not change."""
    if file is not None and version is not None:
        raise BadRequest("give either a file or an uploaded version, not both")
    if file is None and name is None:
        raise BadRequest("no filter was named", hint="a FILE, or -f NAME of one uploaded")
    source = "" if file is None else read_source(file)
    trials: Mapping[str, FilterTrial] = client.admin.filters.try_out(
        group,
        default_name(file or "") if name is None else name,
        topic,
        source=source,
        version=version,
        count=count,
        broker=broker,
    )
    if not trials:
        raise Rejected(f"no filter server can try a filter on topic {topic}")
    rows = [
        (
            where,
            one.queue_id,
            one.offset,
            one.message_id,
            one.tag,
            one.keys,
            {True: "passes", False: "filtered out", None: "filter failed"}[one.passed],
            one.micros,
            one.reason,
        )
        for where, trial in sorted(trials.items())
        for one in trial.messages
    ]
    columns = (
        *("filter server", "queue", "offset", "message", "tag", "keys"),
        *("verdict", "µs", "reason"),
    )
    remarks = [_cost(where, trial) for where, trial in sorted(trials.items())]
    failed = any(trial.failure or trial.failed for trial in trials.values())
    return Report(columns, rows, remarks, failed=failed)


def _cost(where: str, trial: FilterTrial) -> str:
    cost = (
        f"{where}: {trial.passed} of {trial.seen} pass, {trial.failed} failed; "
        f"{trial.micros / max(1, trial.seen):.1f} µs a message, worker started in "
        f"{trial.start_micros / 1_000:.1f} ms"
    )
    if trial.failure:
        cost += f"; ended by: {trial.failure}: {printable(trial.reason)}"
    return cost


@command("filter stats", "Show filter counts, errors and cost.", repeats=True)
def filter_stats(
    client: Client, *, group: OneGroup = "", name: OneName = "", broker: OneBroker = None
) -> Report:
    """Show filter counts, errors and cost since the start of each filter server."""
    servers = client.admin.filters.statistics(group, name, broker=broker)
    shown: list[tuple[str, FilterFigures]] = []
    for where, statistics in sorted(servers.items()):
        shown += [(where, one) for one in statistics]
    rows = [_statistics_row(where, [one]) for where, one in shown]
    versions: dict[tuple[str, str, int], list[FilterFigures]] = {}
    for _, one in shown:
        versions.setdefault((one.group, one.name, one.version), []).append(one)
    # The sums, if several servers ran the same version.
    rows += [
        _statistics_row(ALL_SERVERS, ones) for _, ones in sorted(versions.items()) if len(ones) > 1
    ]
    columns = (
        *("filter server", "group", "filter", "version", "seen", "passed", "errors"),
        *("skipped", "unfiltered", "µs a message", "bytes in", "bytes out", "starts"),
        *("strikes", "runs", "quarantined", "last failure"),
    )
    offline = "" if servers else "; no filter server answers"
    return Report(columns, rows, [] if rows else [f"no filter has run{offline}"])


def _statistics_row(where: str, ones: list[FilterFigures]) -> tuple[Any, ...]:
    first = ones[0]
    seen = sum(one.seen for one in ones)
    last = max(ones, key=lambda one: one.failed_at_ms or 0)
    return (
        where,
        first.group,
        first.name,
        first.version,
        seen,
        sum(one.passed for one in ones),
        sum(one.errors for one in ones),
        sum(one.skipped for one in ones),
        sum(one.unfiltered for one in ones),
        round(sum(one.micros for one in ones) / seen, 2) if seen else None,
        sum(one.bytes_in for one in ones),
        sum(one.bytes_out for one in ones),
        sum(one.starts for one in ones),
        sum(one.failures for one in ones),
        any(one.running for one in ones),
        any(one.quarantined for one in ones),
        f"{last.failure}: {last.reason}" if last.failure else None,
    )


# -- text of other users --------------------------------------------------------------------------


def _each(found: Mapping[str, Iterable[FilterState]]) -> Iterable[tuple[str, FilterState]]:
    """Broker and filter, sorted by both."""
    for where, filters in sorted(found.items()):
        for one in sorted(filters, key=lambda each: each.key):
            yield where, one
