"""A filter: Python code that a consumer group uploaded to select its messages.

A filter belongs to a consumer group and has a name there. It has versions, of which at most one is
active. State: none.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from kourou.errors import BadRequest
from kourou.model.limits import FILTER_NAME_LENGTH_MAX

FilterKey = tuple[str, str]
"""Consumer group and name."""


class FilterPolicy(StrEnum):
    """What happens to a message on which its group's filter fails."""

    HOLD = "hold"
    SKIP = "skip"
    PASS = "pass"

    @property
    def meaning(self) -> str:
        """Its effect on the message, for people."""
        return {
            FilterPolicy.HOLD: "the group waits at it until the filter is fixed",
            FilterPolicy.SKIP: "it is skipped and recorded",
            FilterPolicy.PASS: "it is delivered unfiltered",
        }[self]


class FilterAction(StrEnum):
    """The possible changes of a filter (CHANGE_FILTER)."""

    ENABLE = "enable"
    ROLLBACK = "rollback"
    DISABLE = "disable"
    POLICY = "policy"
    QUARANTINE = "quarantine"
    DELETE = "delete"


class FilterFailure(StrEnum):
    """Why a filter failed, in one word, as in FILTER_FAILED."""

    MISSING = "missing"
    DISABLED = "disabled"
    QUARANTINED = "quarantined"
    RAISED = "raised"
    TIMEOUT = "timeout"
    MEMORY = "memory"
    DIED = "died"
    LIED = "lied"
    SETUP = "setup"


@dataclass(frozen=True, slots=True)
class FilterVersion:
    """One uploaded source. `sha256` is that of its UTF-8, in hexadecimal.

    Times are wall time; `enabled_ms` is when it was last activated, None if never. `source`
    is None where the source was left out.
    """

    version: int
    sha256: str
    author: str
    note: str
    uploaded_ms: int
    size_bytes: int
    source: str | None = None
    enabled_ms: int | None = None


@dataclass(frozen=True, slots=True)
class FilterState:
    """The state of one filter.

    `versions` are the stored versions, oldest first. `active` is the version that runs, or None;
    `before_active` is the one that ran before it. `quarantined` has the versions that must not run,
    active or not, with the reason. `skipped` counts skipped messages. The next upload becomes
    `next_version`.
    """

    group: str
    name: str
    versions: tuple[FilterVersion, ...] = ()
    active: int | None = None
    before_active: int | None = None
    policy: FilterPolicy = FilterPolicy.HOLD
    quarantined: Mapping[int, str] = field(default_factory=dict)
    skipped: int = 0
    next_version: int = 1

    @property
    def key(self) -> FilterKey:
        """Its group and name."""
        return self.group, self.name

    @property
    def status(self) -> str:
        """`runs`, `disabled` or `quarantined`: such a version does not run, even if active."""
        if self.active is None:
            return "disabled"
        return "quarantined" if self.active in self.quarantined else "runs"

    @property
    def newest(self) -> int | None:
        """The version uploaded last."""
        return self.versions[-1].version if self.versions else None

    def bare(self) -> FilterState:
        """The same without the sources."""
        return replace(self, versions=tuple(replace(one, source=None) for one in self.versions))

    def version(self, number: int) -> FilterVersion | None:
        """One of the stored versions, or None."""
        for one in self.versions:
            if one.version == number:
                return one
        return None


_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.$-]*")


def check_filter_name(name: str) -> str:
    """Return `name` if it is a valid filter name. Raises BadRequest that says why not.

    The full name of a Java class is valid, because old clients send such names.
    """
    if not 0 < len(name) <= FILTER_NAME_LENGTH_MAX or _NAME.fullmatch(name) is None:
        raise BadRequest(
            f"a filter cannot be named {name[:FILTER_NAME_LENGTH_MAX]!r}",
            hint=f"1 to {FILTER_NAME_LENGTH_MAX} of a-z A-Z 0-9 _ . $ -, the first not . $ or -",
        )
    return name
