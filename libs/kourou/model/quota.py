"""Quotas: how much a user, a topic or a consumer group may use of one broker."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType

import msgspec

from kourou.errors import BadRequest
from kourou.model.limits import QUOTA_LIMIT_MAX, USER_NAME_LENGTH_MAX
from kourou.model.names import check_group, check_topic

EVERY = "*"
"""The name of the quota of all users, topics or groups that have no quota of their own."""


class QuotaKind(StrEnum):
    """What a quota is for."""

    USER = "user"
    TOPIC = "topic"
    GROUP = "group"


class QuotaUnit(StrEnum):
    """What a quota limits: a second, but for open connections, and what exists: topics, groups and
    stored bytes.

    Fetches are pulls of consumers.
    """

    PUBLISH_BYTES = "publish_bytes"
    PUBLISH_MESSAGES = "publish_messages"
    FETCH_BYTES = "fetch_bytes"
    FETCH_MESSAGES = "fetch_messages"
    REQUESTS = "requests"
    CONNECTIONS = "connections"
    TOPICS = "topics"
    GROUPS = "groups"
    STORED_BYTES = "stored_bytes"

    @property
    def text(self) -> str:
        """The unit as a message names it."""
        return self.value.replace("_", " ")

    def amount(self, limit: int) -> str:
        """A limit as a message names it, like `10 requests/s`."""
        return f"{limit} {self.column}"

    @property
    def column(self) -> str:
        """The unit with the time that a limit is for, like `requests/s`."""
        return self.text + ("" if self in _AT_A_TIME else "/s")


_AT_A_TIME = (
    QuotaUnit.CONNECTIONS,
    QuotaUnit.TOPICS,
    QuotaUnit.GROUPS,
    QuotaUnit.STORED_BYTES,
)
_FETCHES = (QuotaUnit.FETCH_BYTES, QuotaUnit.FETCH_MESSAGES)
UNITS_OF: Mapping[QuotaKind, tuple[QuotaUnit, ...]] = MappingProxyType(
    {
        QuotaKind.USER: tuple(QuotaUnit),
        QuotaKind.TOPIC: (
            QuotaUnit.PUBLISH_BYTES,
            QuotaUnit.PUBLISH_MESSAGES,
            *_FETCHES,
            QuotaUnit.STORED_BYTES,
        ),
        QuotaKind.GROUP: _FETCHES,
    }
)
"""What can be limited for each kind: a group does not publish, and only a user sends requests, has
connections, and creates topics and groups."""

QuotaKey = tuple[QuotaKind, str]


class Quota(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of one user, topic or group at each broker, a second; None: not limited.

    `connections` is the number of connections that a user may have open at a time, `topics` and
    `groups` the number of those that it may have created, `stored_bytes` the size of the messages
    that a topic, or all topics that a user created, may have in the log.
    With the name `*` it is the quota of each one that has no quota of its own: a quota replaces it
    as a whole, also one without limits.
    """

    kind: QuotaKind
    name: str
    publish_bytes: int | None = None
    publish_messages: int | None = None
    fetch_bytes: int | None = None
    fetch_messages: int | None = None
    requests: int | None = None
    connections: int | None = None
    topics: int | None = None
    groups: int | None = None
    stored_bytes: int | None = None

    @property
    def key(self) -> QuotaKey:
        """What a table has it by."""
        return self.kind, self.name

    def limits(self) -> dict[QuotaUnit, int]:
        """What is limited, and to how much."""
        found = {unit: getattr(self, unit.value) for unit in QuotaUnit}
        return {unit: limit for unit, limit in found.items() if limit is not None}


def quota_kind(text: str) -> QuotaKind:
    """Read a kind. Raises BadRequest."""
    try:
        return QuotaKind(text)
    except ValueError:
        raise BadRequest(f"{text!r} has no quotas", hint=f"one of {', '.join(QuotaKind)}") from None


def check_quota_name(kind: QuotaKind, name: str) -> str:
    """Return the name if it can be one of this kind, or is `*`. Raises BadRequest."""
    if name == EVERY:
        return name
    if kind is QuotaKind.TOPIC:
        return check_topic(name)
    if kind is QuotaKind.GROUP:
        return check_group(name)
    if not 1 <= len(name) <= USER_NAME_LENGTH_MAX or not name.isprintable() or "/" in name:
        raise BadRequest(f"{name[:USER_NAME_LENGTH_MAX]!r} is not a user name")
    return name


def check_quota(quota: Quota) -> Quota:
    """Return the quota. Raises BadRequest if its name or a limit is not valid."""
    check_quota_name(quota.kind, quota.name)
    possible = UNITS_OF[quota.kind]
    for unit, limit in quota.limits().items():
        if unit not in possible:
            raise BadRequest(
                f"a {quota.kind} has no quota of {unit.text}",
                hint=f"possible are {', '.join(one.text for one in possible)}",
            )
        if not 1 <= limit <= QUOTA_LIMIT_MAX:
            raise BadRequest(
                f"the quota of {unit.text} is {limit}; it must be from 1 to {QUOTA_LIMIT_MAX}",
                hint="to forbid it, use a policy: kourou user deny",
            )
    return quota
