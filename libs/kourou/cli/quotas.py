"""`kourou quota`: what users, topics and consumer groups may use of each broker, a second.

A change goes to all brokers of the cluster; an error names those that failed. A table has a column
with the brokers that a row is true for: `all`, or their names if they differ.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kourou.cli.admin.command import command
from kourou.cli.admin.command import quota as quota  # its commands are declared here
from kourou.cli.admin.report import Report
from kourou.cli.users import report_of, rows_by_broker
from kourou.errors import BadRequest
from kourou.telemetry.logs import printable

if TYPE_CHECKING:
    from kourou.client.admin.base_api import ByBroker
    from kourou.model.quota import Quota
    from kourou.sync import Client

_AMOUNT = re.compile(r"([0-9]+)(|k|m|g|ki|mi|gi)b?", re.IGNORECASE)
_FACTORS = {
    "": 1,
    "k": 10**3,
    "m": 10**6,
    "g": 10**9,
    "ki": 1 << 10,
    "mi": 1 << 20,
    "gi": 1 << 30,
}

Kind = Annotated[str, typer.Argument(metavar="user|topic|group", help="What it is for.")]
Name = Annotated[
    str,
    typer.Argument(metavar="NAME", help="Its name; '*' for all that have no quota of their own."),
]
PublishBytes = Annotated[
    str, typer.Option("--publish-bytes", metavar="N", help="Bytes sent a second, like 512Ki or 5M.")
]
PublishMessages = Annotated[
    str, typer.Option("--publish-messages", metavar="N", help="Messages sent a second.")
]
FetchBytes = Annotated[
    str, typer.Option("--fetch-bytes", metavar="N", help="Bytes pulled by consumers a second.")
]
FetchMessages = Annotated[
    str, typer.Option("--fetch-messages", metavar="N", help="Messages pulled a second.")
]
Requests = Annotated[
    str, typer.Option("--requests", metavar="N", help="Requests of any kind a second (users only).")
]
Connections = Annotated[
    str, typer.Option("--connections", metavar="N", help="Open connections (users only).")
]
Topics = Annotated[
    str, typer.Option("--topics", metavar="N", help="Topics that it created (users only).")
]
Groups = Annotated[
    str,
    typer.Option("--groups", metavar="N", help="Consumer groups that it created (users only)."),
]
StoredBytes = Annotated[
    str,
    typer.Option(
        "--stored-bytes", metavar="N", help="Bytes in the log (topics, and users for theirs)."
    ),
]
Reason = Annotated[str, typer.Option("--reason", help="The reason, kept in the history.")]


def amount(text: str) -> int:
    """Read a number with an optional unit: k, M, G are decimal, Ki, Mi, Gi binary, B is ignored.

    Raises BadRequest.
    """
    found = _AMOUNT.fullmatch(text.strip())
    if found is None:
        raise BadRequest(f"{text!r} is not an amount", hint="for example 1000, 512Ki or 5M")
    return int(found[1]) * _FACTORS[found[2].lower()]


@command("quota set", "Limit a user, topic or group.")
def set_quota(
    client: Client,
    kind: Kind,
    name: Name,
    *,
    publish_bytes: PublishBytes = "",
    publish_messages: PublishMessages = "",
    fetch_bytes: FetchBytes = "",
    fetch_messages: FetchMessages = "",
    requests: Requests = "",
    connections: Connections = "",
    topics: Topics = "",
    groups: Groups = "",
    stored_bytes: StoredBytes = "",
    unlimited: Annotated[
        bool, typer.Option("--unlimited", help="No limits, not even those of '*'.")
    ] = False,
    reason: Reason = "",
) -> Report:
    """Limit what a user, topic or group may use of each broker, per second or in all.

    It replaces the quota of that name: what is not given is not limited. Who uses more is slowed
    down; who does not wait for replies is refused for a moment, with code 215.
    """
    from kourou.model.quota import QuotaUnit

    limits = {
        "publish_bytes": publish_bytes,
        "publish_messages": publish_messages,
        "fetch_bytes": fetch_bytes,
        "fetch_messages": fetch_messages,
        "requests": requests,
        "connections": connections,
        "topics": topics,
        "groups": groups,
        "stored_bytes": stored_bytes,
    }
    wanted = {unit: amount(text) for unit, text in limits.items() if text}
    if bool(wanted) == unlimited:
        raise BadRequest("give at least one limit, or --unlimited", hint="kourou quota set --help")
    client.admin.quotas.set(kind, name, reason=reason, **wanted)
    texts = [QuotaUnit(unit).amount(limit) for unit, limit in wanted.items()]
    return Report(remarks=[f"{kind} {printable(name)}: {', '.join(texts) or 'no limits'}"])


@command("quota remove", "Remove a quota.")
def remove_quota(client: Client, kind: Kind, name: Name, *, reason: Reason = "") -> Report:
    """Remove a quota at all brokers; that of '*' applies from then on, if there is one."""
    client.admin.quotas.remove(kind, name, reason=reason)
    return Report(remarks=[f"removed the quota of {kind} {printable(name)}"])


@command("quota list", "List quotas.")
def list_quotas(
    client: Client,
    kind: Annotated[
        str | None,
        typer.Argument(metavar="user|topic|group", help="Only these (default: all)."),
    ] = None,
) -> Report:
    """List the quotas of all brokers; `-` is not limited."""
    from kourou.client.admin.base_api import ByBroker
    from kourou.model.quota import QuotaUnit, quota_kind

    wanted = None if kind is None else quota_kind(kind)
    listed: ByBroker[list[Quota]] = client.admin.quotas.list()
    found = ByBroker(
        {
            broker: [one for one in quotas if wanted in (None, one.kind)]
            for broker, quotas in listed.items()
        },
        listed.missing,
    )
    columns = ("for", "name", *(unit.column for unit in QuotaUnit), "brokers")
    return report_of(columns, rows_by_broker(found, _row), found, "no quotas")


def _row(one: Quota) -> tuple[Any, ...]:
    from kourou.model.quota import QuotaUnit

    return (one.kind.value, one.name, *(getattr(one, unit) for unit in QuotaUnit))
