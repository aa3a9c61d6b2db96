"""Which rights requests need, by user and network: counted, so that policies can be tried on them.

A policy is tried against what clients did in the last days: what would it have refused, and what
would it have allowed? For that no request is kept, but how many there were of each kind, and when
the last one was. A kind is a user, the rights that a request needs, and the network (/24, or /64)
that it comes from.

State: soft, the counts since they were last taken.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from ipaddress import ip_address, ip_network
from typing import TypeAlias

import msgspec

from kourou.access.api_token import owner_of
from kourou.access.authorizer import AccessTable, Authorizer, Decision
from kourou.access.model import AnyOf, Need, plain_address
from kourou.authorization.access_table import (
    AccessAggregate,
    decide_put_policy,
    decide_remove_policy,
    evolve,
)
from kourou.events.control_events import AccessEventBase
from kourou.model.limits import (
    ACCESS_USES_MAX,
    ACCESS_USES_RIGHTS_MAX,
    ACCESS_USES_TRIED_MAX,
    ACCESS_USES_USER_MAX,
)
from kourou.protocol.bodies.access_bodies import PolicyChange, PolicyChangeKind, TriedUse

Needs: TypeAlias = tuple[Need | AnyOf, ...]


@dataclass(slots=True)
class Use:
    """Requests of a kind: how many since the counts were taken, when the last one came.

    `source` is where one of the last came from: what is remembered of a client does not say again.
    """

    count: int = 0
    last_ms: int = 0
    source: str | None = None


class UseLine(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Requests of a kind, as a line of a file: `count` up to `last_ms`, epoch ms.

    `source` is the address of one of the last, None through a console, "" from the same process.
    `needs` has for each right the names of which one suffices. Without any, they are those of a
    user that had too many kinds, or needed too many rights, and cannot be tried.
    """

    user: str
    network: str = ""
    source: str | None = None
    needs: tuple[tuple[Need, ...], ...] = ()
    count: int
    last_ms: int

    @property
    def kind(self) -> tuple[str, str, tuple[tuple[Need, ...], ...]]:
        """What lines of the same requests have in common."""
        return self.user, self.network, self.needs

    def add(self, other: UseLine) -> None:
        """Count requests of the same kind."""
        self.count += other.count
        if other.last_ms >= self.last_ms:
            self.last_ms, self.source = other.last_ms, other.source


@dataclass(frozen=True, slots=True)
class UsesCounted:
    """Note how many requests of each kind there were until `wall_ms`."""

    lines: list[UseLine]
    wall_ms: int


@dataclass(frozen=True, slots=True)
class UsesQuestion:
    """What does `proposed` do with the requests since a time, at `wall_ms`? See TRY_POLICIES."""

    now: AccessTable
    proposed: AccessTable
    wall_ms: int
    since_ms: int | None


@dataclass(frozen=True, slots=True)
class UsesFound:
    """The result; counts begin at `since_ms`, 0 without any."""

    tried: TriedPolicies
    since_ms: int


class AccessUses:
    """Counts decided requests by kind.

    Bounded: a user has ACCESS_USES_USER_MAX kinds at most, so that no other user, and no client
    without credentials, takes its place; a kind has ACCESS_USES_RIGHTS_MAX rights at most. What is
    beyond that is counted by user.
    """

    def __init__(self) -> None:
        self._uses: dict[tuple[str, Needs, str], Use] = {}
        self._kinds: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._uses)

    @property
    def full(self) -> bool:
        """Whether some kinds are not counted one by one: forget the uses after they are taken."""
        return len(self._uses) >= ACCESS_USES_MAX or any(
            count >= ACCESS_USES_USER_MAX for count in self._kinds.values()
        )

    def of(self, user: str, needs: Needs, source: str | None) -> Use:
        """Return where requests of a kind are counted."""
        key = (user, needs, network_of(source))
        found = self._uses.get(key)
        if found is None:
            owner = owner_of(user)
            kinds = self._kinds.get(owner, 0)
            if (
                kinds >= ACCESS_USES_USER_MAX
                or len(self._uses) >= ACCESS_USES_MAX
                or len(needs) > ACCESS_USES_RIGHTS_MAX
            ):
                return self._uses.setdefault((owner, (), ""), Use())
            self._kinds[owner] = kinds + 1
            found = self._uses[key] = Use()
        return found

    def take(self) -> list[UseLine]:
        """Return what was counted, and count from zero."""
        taken = []
        for (user, needs, network), use in self._uses.items():
            if use.count:
                taken.append(
                    UseLine(
                        user=user,
                        network=network,
                        source=use.source,
                        needs=tuple(map(_alternatives, needs)),
                        count=use.count,
                        last_ms=use.last_ms,
                    )
                )
                use.count = 0
        return taken

    def forget(self) -> None:
        """Forget all kinds. What was returned by `of` does not count any more."""
        self._uses.clear()
        self._kinds.clear()


def network_of(source: str | None) -> str:
    """Return the network (/24, or /64) of an address; "" if it is not known, or no address."""
    if not source:
        return ""
    try:
        address = ip_address(plain_address(source))
    except ValueError:
        return ""
    return str(ip_network((address, 24 if address.version == 4 else 64), strict=False))


def _alternatives(need: Need | AnyOf) -> tuple[Need, ...]:
    return need.needs if isinstance(need, AnyOf) else (need,)


# -- trying policies ------------------------------------------------------------------------------


def changed_table(access: AccessAggregate, changes: Iterable[PolicyChange]) -> AccessTable:
    """Return the users and policies as they would be after these changes. Raises BadRequest."""
    proposed = access.copy()
    for change in changes:
        replaced = change.replaced
        events = [
            event
            for key, one in list(proposed.policies.items())
            if one.user == change.user and replaced in (None, one.resource)
            for event in decide_remove_policy(proposed, key)
        ]
        if change.change is not PolicyChangeKind.REVOKE:
            events += decide_put_policy(proposed, change.policy())
        for event in events:
            assert isinstance(event, AccessEventBase)
            evolve(proposed, event)
    return proposed.table


@dataclass(frozen=True, slots=True)
class TriedPolicies:
    """What policies would do: `uses`, the most frequent first, of `requests` requests in all.

    `untried` of them had no kind of their own. `refused` would be refused. `more`: there are more
    than ACCESS_USES_TRIED_MAX kinds.
    """

    uses: list[TriedUse]
    requests: int
    refused: int
    untried: int
    more: bool


def tried(
    lines: Iterable[UseLine], now: AccessTable, proposed: AccessTable, wall_ms: int
) -> TriedPolicies:
    """Decide recorded requests by two tables, both as of `wall_ms`, epoch ms.

    Returns those that `proposed` refuses, or decides otherwise than `now`.
    """
    before, after = Authorizer(now), Authorizer(proposed)
    found: list[TriedUse] = []
    requests = refused = untried = 0
    for line in lines:
        requests += line.count
        if not line.needs:
            untried += line.count
            continue
        needs = [one[0] if len(one) == 1 else AnyOf(one) for one in line.needs]
        then = after.decide(line.user, needs, line.source, wall_ms)
        first = before.decide(line.user, needs, line.source, wall_ms)
        if not then.allowed:
            refused += line.count
        elif first.allowed:
            continue
        found.append(_tried_use(line, needs, first, then))
    found.sort(key=lambda one: (one.allowed, one.was_allowed is False, -one.count))
    more = len(found) > ACCESS_USES_TRIED_MAX
    return TriedPolicies(found[:ACCESS_USES_TRIED_MAX], requests, refused, untried, more)


def _tried_use(
    line: UseLine, needs: Sequence[Need | AnyOf], first: Decision, then: Decision
) -> TriedUse:
    need = then.need if not then.allowed else first.need
    return TriedUse(
        user=line.user,
        network=line.network,
        source=line.source,
        need=str(need) if need is not None else " and ".join(map(str, needs)),
        by=then.by,
        allowed=then.allowed,
        was_allowed=first.allowed,
        count=line.count,
        last_ms=line.last_ms,
    )
