"""The quotas of this broker.

State: projection of the quota events; owned and changed in place by `evolve`.

Invariant: there is at most one quota for each kind and name.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from kourou.errors import BadRequest
from kourou.events.control_events import Event, QuotaEventBase, QuotaPut, QuotaRemoved
from kourou.model.limits import QUOTAS_MAX
from kourou.model.quota import EVERY, Quota, QuotaKey, QuotaKind, check_quota

_KINDS = frozenset(QuotaKind)


@dataclass(slots=True)
class QuotaAggregate:
    """The table. `changes` counts the events since this object was created."""

    table: dict[QuotaKey, Quota] = field(default_factory=dict)
    changes: int = field(default=0, compare=False)

    def named(self, text: str) -> Quota | None:
        """Return the quota that a text like `user/till` names."""
        kind, _, name = text.partition("/")
        return self.table.get((QuotaKind(kind), name)) if kind in _KINDS else None

    def of(self, kind: QuotaKind, name: str) -> Quota | None:
        """Return the quota that applies to a user, topic or group."""
        return self.table.get((kind, name)) or self.table.get((kind, EVERY))

    def copy(self) -> QuotaAggregate:
        """Return an independent copy. O(quotas)."""
        return QuotaAggregate(dict(self.table))

    def snapshot(self) -> list[Quota]:
        """Return the quotas for a snapshot: equal tables give equal lists."""
        return [self.table[key] for key in sorted(self.table)]


def quotas_of(found: Iterable[Quota]) -> QuotaAggregate:
    """Return the table from a result of `snapshot`."""
    return QuotaAggregate({one.key: one for one in found})


def evolve(quotas: QuotaAggregate, event: QuotaEventBase) -> None:
    """Apply one event, in place."""
    match event:
        case QuotaPut(quota):
            quotas.table[quota.key] = quota
        case QuotaRemoved(gone):
            quotas.table.pop(gone.key, None)
    quotas.changes += 1


def decide_put(quotas: QuotaAggregate, wanted: Quota) -> list[Event]:
    """Add or replace a quota. Raises BadRequest."""
    quota = check_quota(wanted)
    before = quotas.table.get(quota.key)
    if quota == before:
        return []
    if before is None and len(quotas.table) >= QUOTAS_MAX:
        raise BadRequest(f"there are {QUOTAS_MAX} quotas; no more are possible")
    return [QuotaPut(quota, before)]


def decide_remove(quotas: QuotaAggregate, kind: QuotaKind, name: str) -> list[Event]:
    """Remove a quota; one that does not exist is not an error."""
    before = quotas.table.get((kind, name))
    return [] if before is None else [QuotaRemoved(before)]
