"""The actions of the commands for filters: each is a request to the admin API and one report."""

from __future__ import annotations

import getpass
import re
import socket
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kourou.cli.admin.moments import as_text
from kourou.cli.admin.report import Report
from kourou.errors import BadRequest, ConfigError, Rejected
from kourou.model.filter import FilterPolicy, FilterState, check_filter_name
from kourou.model.limits import FILTER_AUTHOR_LENGTH_MAX, FILTER_SOURCE_BYTES_MAX
from kourou.protocol.bodies.filter_bodies import FilterFigures, FilterTrial
from kourou.sync import Client

STDIN = "-"
IN_ALL = "all"
"""The name of the row with the sums over all filter servers."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """A filter, and where: at one broker, at those of a cluster, or at all that have it."""

    group: str
    name: str
    broker: str | None = None
    cluster: str | None = None

    def __post_init__(self) -> None:
        """Raises an error for invalid filter names before any request is sent."""
        check_filter_name(self.name)

    @property
    def where(self) -> dict[str, str | None]:
        """As arguments of the client's admin API."""
        return {"broker": self.broker, "cluster": self.cluster}


# -- input ----------------------------------------------------------------------------------------


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


def name_for(file: str) -> str:
    """The default name of a filter that is uploaded from a file: the file's name."""
    if file == STDIN:
        raise BadRequest("what comes from stdin has no name", hint="-f NAME")
    return Path(file).stem


def whoever_asks() -> str:
    """The user of this command as `ann@till-7`, as far as the system knows it."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # an account without a name, as in many containers
        user = "somebody"
    return f"{user}@{socket.gethostname()}"[:FILTER_AUTHOR_LENGTH_MAX]


# -- showing --------------------------------------------------------------------------------------


def filter_list(client: Client, group: str, broker: str | None) -> Report:
    """Every filter at every broker."""
    found = client.admin.filters.list(group, broker=broker)
    rows = [
        (
            name,
            _clean(one.group),
            _clean(one.name),
            len(one.versions),
            one.newest,
            one.active,
            one.policy.value,
            state_of(one),
            one.skipped,
        )
        for name, one in _each(found)
    ]
    columns = (
        *("broker", "group", "filter", "versions", "newest", "active", "policy"),
        *("state", "skipped"),
    )
    remarks = [] if rows else ["no filters"]
    for where, servers in sorted(client.admin.filters.servers(broker=broker).items()):
        told = (
            ", ".join(servers)
            or "no filter server is online: groups with a filter wait at this broker"
        )
        remarks.append(f"filter servers of {where}: {told}")
    return Report(columns, rows, remarks)


def state_of(one: FilterState) -> str:
    """`runs`, `disabled` or `quarantined`; a quarantined version does not run, even if active."""
    if one.active is None:
        return "disabled"
    return "quarantined" if one.active in one.quarantined else "runs"


def filter_show(client: Client, group: str, name: str, broker: str | None) -> Report:
    """The versions of one filter at every broker that has it."""
    found = client.admin.filters.list(group, name, broker=broker)
    filters = list(_each(found))
    if not filters:
        raise _no_filter(group, name)
    rows = [
        (
            where,
            each.version,
            each.version == one.active,
            one.quarantined.get(each.version) is not None,
            as_text(each.uploaded_ms),
            _clean(each.author),
            each.size_bytes,
            each.sha256,
            _clean(each.note),
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
        remarks.append(
            f"{where}: {state_of(one)}, policy {one.policy.value}, {one.skipped} skipped"
        )
        remarks += [
            f"{where}: version {number} is quarantined: {_clean(why)}"
            for number, why in sorted(one.quarantined.items())
        ]
    remarks.append(f"who decided what: kourou history filter/{_clean(group)}/{_clean(name)}")
    return Report(columns, rows, remarks)


def filter_source(
    client: Client, group: str, name: str, version: int | None, broker: str | None
) -> Report:
    """The Python source of a version as it was uploaded; by default of the active one."""
    found = client.admin.filters.source(group, name, version, broker=broker)
    return Source(found.version, found.source or "")


class Source(Report):
    """A report that prints text unchanged, so that it can be saved to a file and uploaded again."""

    def __init__(self, version: int, text: str) -> None:
        super().__init__(("version", "source"), [(version, text)])
        self._text = text

    def show(self, *, as_json: bool) -> None:
        """Print only the text; on a terminal, control characters are escaped."""
        if as_json:
            super().show(as_json=True)
            return
        text = self._text if not sys.stdout.isatty() else _clean_lines(self._text)
        sys.stdout.write(text if text.endswith("\n") else f"{text}\n")


# -- changing -------------------------------------------------------------------------------------


def filter_put(
    client: Client, chosen: Chosen, source: str, *, author: str, note: str, enable: bool
) -> Report:
    """Upload a version; an identical source keeps its version number."""
    done = client.admin.filters.put(
        chosen.group,
        chosen.name,
        source,
        note=note,
        author=author,
        enable=enable,
        **chosen.where,
    )
    report = _changes(done)
    for where, change in sorted(done.items()):
        if enable and change.active != change.version:
            why = "" if change.quarantined is None else f" (quarantine: {change.quarantined})"
            report.remarks.append(
                f"{where}: version {change.version} is disabled{_clean(why)}; "
                "`kourou admin filter enable` enables it"
            )
    return report


def filter_enable(client: Client, chosen: Chosen, version: int | None, reason: str) -> Report:
    """Enable a version."""
    filters = client.admin.filters
    return _changes(
        filters.enable(chosen.group, chosen.name, version, reason=reason, **chosen.where)
    )


def filter_disable(client: Client, chosen: Chosen, reason: str) -> Report:
    """Disable the filter."""
    filters = client.admin.filters
    return _changes(filters.disable(chosen.group, chosen.name, reason=reason, **chosen.where))


def filter_rollback(client: Client, chosen: Chosen, reason: str) -> Report:
    """Enable the previous version."""
    filters = client.admin.filters
    return _changes(filters.rollback(chosen.group, chosen.name, reason=reason, **chosen.where))


def filter_policy(client: Client, chosen: Chosen, policy: str, reason: str) -> Report:
    """Set the failure policy: what happens to messages on which the filter fails."""
    known = [one.value for one in FilterPolicy]
    wanted = policy.strip().lower()
    if wanted not in known:
        raise BadRequest(f"unknown policy {policy!r}", hint=", ".join(known))
    filters = client.admin.filters
    done = filters.set_policy(chosen.group, chosen.name, wanted, reason=reason, **chosen.where)
    report = _changes(done)
    report.remarks.append(f"if {chosen.name} fails on a message: {MEANINGS[wanted]}")
    if wanted != FilterPolicy.PASS:  # a quarantine outlives the policy that caused it
        report.remarks += [
            f"{where}: version {change.version} is quarantined ({_clean(change.quarantined)}), "
            "so its group still waits; `kourou admin filter enable` ends the quarantine"
            for where, change in sorted(done.items())
            if change.quarantined is not None
        ]
    return report


MEANINGS = {
    "hold": "the group waits at it until the filter is fixed",
    "skip": "it is skipped and recorded",
    "pass": "it is delivered unfiltered",
}


def filter_delete(client: Client, chosen: Chosen, reason: str) -> Report:
    """Delete the filter; the history keeps it."""
    filters = client.admin.filters
    done = filters.delete(chosen.group, chosen.name, reason=reason, **chosen.where)
    remarks = [
        f"{where}: the filter {chosen.name} of {chosen.group} was deleted" for where in sorted(done)
    ]
    return Report(remarks=remarks)


def _changes(done: Mapping[str, Any]) -> Report:
    rows = [(where, one.version, one.active, one.created) for where, one in sorted(done.items())]
    return Report(("broker", "version", "active", "created"), rows)


# -- dry runs and metrics -------------------------------------------------------------------------


def filter_try(
    client: Client,
    what: tuple[str, str, str],
    *,
    source: str,
    version: int | None,
    count: int,
    broker: str | None,
) -> Report:
    """Dry run a filter (group, name, topic) on the topic's last messages; failed if it failed."""
    group, name, topic = what
    check_filter_name(name)
    trials: Mapping[str, FilterTrial] = client.admin.filters.try_out(
        group, name, topic, source=source, version=version, count=count, broker=broker
    )
    if not trials:
        raise Rejected(f"no filter server can try a filter on topic {topic}")
    rows = [
        (
            where,
            one.queue_id,
            one.offset,
            _clean(one.message_id),
            _clean(one.tag),
            _clean(one.keys),
            {True: "passes", False: "filtered out", None: "filter failed"}[one.passed],
            one.micros,
            _clean(one.reason),
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
    judged = max(1, trial.seen)
    told = (
        f"{where}: {trial.passed} of {trial.seen} pass, {trial.failed} failed; "
        f"{trial.micros / judged:.1f} µs a message, worker started in "
        f"{trial.start_micros / 1_000:.1f} ms"
    )
    if trial.failure:
        told += f"; ended by: {trial.failure}: {_clean(trial.reason)}"
    return told


def filter_stats(client: Client, group: str, name: str, broker: str | None) -> Report:
    """The metrics of every filter at every filter server, and the sums if several ran it."""
    found = client.admin.filters.statistics(group, name, broker=broker)
    shown: list[tuple[str, FilterFigures]] = []
    for where, figures in sorted(found.items()):
        shown += [(where, one) for one in figures]
    rows = [_figures(where, [one]) for where, one in shown]
    versions: dict[tuple[str, str, int], list[FilterFigures]] = {}
    for _, one in shown:
        versions.setdefault((one.group, one.name, one.version), []).append(one)
    rows += [_figures(IN_ALL, ones) for _, ones in sorted(versions.items()) if len(ones) > 1]
    columns = (
        *("filter server", "group", "filter", "version", "seen", "passed", "errors"),
        *("skipped", "unfiltered", "µs a message", "bytes in", "bytes out", "starts"),
        *("strikes", "runs", "quarantined", "last failure"),
    )
    told = "" if found else "; no filter server answers"
    return Report(columns, rows, [] if rows else [f"no filter has run{told}"])


def _figures(where: str, ones: list[FilterFigures]) -> tuple[Any, ...]:
    first = ones[0]
    seen = sum(one.seen for one in ones)
    last = max(ones, key=lambda one: one.failed_at_ms or 0)
    return (
        where,
        _clean(first.group),
        _clean(first.name),
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
        sum(one.strikes for one in ones),
        any(one.running for one in ones),
        any(one.quarantined for one in ones),
        _clean(f"{last.failure}: {last.reason}") if last.failure else None,
    )


# -- helpers --------------------------------------------------------------------------------------


def _each(found: Mapping[str, Iterable[FilterState]]) -> Iterable[tuple[str, FilterState]]:
    for where, filters in sorted(found.items()):
        for one in sorted(filters, key=lambda each: each.key):
            yield where, one


def _no_filter(group: str, name: str) -> Rejected:
    return Rejected(
        f"group {group} has no filter {name!r}", hint="kourou admin filter list names them"
    )


def _clean(text: str) -> str:
    """Escape control characters: text of other users must not control this terminal."""
    return "".join(one if one.isprintable() else f"\\x{ord(one):02x}" for one in text)


def _clean_lines(text: str) -> str:
    return re.sub(r"[^\n]+", lambda line: _clean(line[0].replace("\t", "    ")), text)
