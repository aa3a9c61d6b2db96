"""Decides requests by users, roles and policies, and remembers its decisions.

An AccessTable is a value: each change makes a new one with a higher version, and a new Authorizer.
A grant that ends clears what an Authorizer remembers. It never remembers that a connection was good
once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from types import MappingProxyType

from kourou.access.api_token import ApiToken
from kourou.access.model import (
    ALL,
    ANONYMOUS,
    ROLES,
    SOME,
    Action,
    AnyOf,
    Effect,
    Need,
    Pattern,
    Policy,
    User,
    UserRole,
    plain_address,
)
from kourou.errors import BadRequest
from kourou.model.limits import ACCESS_DECISIONS_MAX

NEVER_MS = 2**63 - 1
"""A time that does not come."""


@dataclass(frozen=True, slots=True)
class AccessTable:
    """All users, policies and tokens (by their names) as of a version.

    Invariant: once there was an enabled administrator there is always one, so a change can lock out
    others but never everybody.
    """

    version: int = 0
    users: Mapping[str, User] = field(default_factory=lambda: MappingProxyType({}))
    policies: Mapping[str, Policy] = field(default_factory=lambda: MappingProxyType({}))
    tokens: Mapping[str, ApiToken] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def administrators(self) -> list[str]:
        """The enabled users who administer everything, without an end."""
        return _administrators(self.users)

    def with_user(self, user: User) -> AccessTable:
        """The next table with a user added or replaced."""
        return self._next({**self.users, user.name: user}, self.policies)

    def without_user(self, name: str) -> AccessTable:
        """The next table without a user and without the policies about it."""
        users = {key: one for key, one in self.users.items() if key != name}
        kept = {key: one for key, one in self.policies.items() if one.user != name}
        return self._next(users, kept)

    def with_policy(self, policy: Policy) -> AccessTable:
        """The next table with a policy added or replaced. Raises BadRequest for unknown users."""
        check_user_of(policy, self.users)
        return self._next(self.users, {**self.policies, policy.id: policy})

    def _next(self, users: Mapping[str, User], policies: Mapping[str, Policy]) -> AccessTable:
        check_administrators(self.users, users)
        return AccessTable(
            self.version + 1,
            MappingProxyType(dict(users)),
            MappingProxyType(dict(policies)),
            self.tokens,
        )


def check_administrators(before: Mapping[str, User], after: Mapping[str, User]) -> None:
    """Raise BadRequest if there was an enabled administrator and is none any more."""
    if _administrators(before) and not _administrators(after):
        raise BadRequest(
            "this would remove the last administrator; nothing was changed",
            hint="make another user an administrator first",
        )


def check_user_of(policy: Policy, users: Mapping[str, User]) -> None:
    """Raise BadRequest if the user of a policy does not exist."""
    if policy.user not in users and policy.user != ANONYMOUS:
        raise BadRequest(f"user {policy.user!r} not found", hint="create the user first")


def _administrators(users: Mapping[str, User]) -> list[str]:
    return [one.name for one in users.values() if one.enabled and one.administers]


@dataclass(frozen=True, slots=True)
class Decision:
    """The answer to one need, and what decided it: `policy 7`, `role writer`, or why not."""

    allowed: bool
    by: str
    need: Need | None = None

    def __bool__(self) -> bool:
        return self.allowed


@dataclass(frozen=True, slots=True)
class AccessEntry:
    """One entry that a user has from a policy or from a role."""

    pattern: Pattern
    actions: frozenset[Action]
    effect: Effect
    networks: tuple[str, ...]
    until_ms: int | None
    origin: str

    def concerns(self, need: Need) -> bool:
        """True if the resource and an action fit, from wherever the request comes.

        A user who is denied one resource does not get all of its type, and who is allowed one has
        a right to some of it.
        """
        if self.actions.isdisjoint(need.actions):
            return False
        if (need.name, self.effect) in ((ALL, Effect.DENY), (SOME, Effect.ALLOW)):
            return self.pattern.type in (None, need.type)
        return self.pattern.covers(need.type, need.name)


def entries_of(table: AccessTable, user: str) -> list[AccessEntry]:
    """The entries of a user: of its policies first, then of its roles; of a token: of its scope."""
    found = [
        AccessEntry(
            one.resource,
            frozenset(one.actions),
            one.effect,
            one.networks,
            one.until_ms,
            f"policy {one.id}",
        )
        for one in table.policies.values()
        if one.user == user
    ]
    account, token = table.users.get(user), table.tokens.get(user)
    grants = account.roles if account else (token.grant,) if token else ()
    origin = "the token's scope" if token else "role"
    for grant in grants:
        found += [
            AccessEntry(
                Pattern(kind, grant.prefix, is_prefix=True),
                actions,
                Effect.ALLOW,
                (),
                grant.until_ms,
                f"{origin} {grant.role}" + (f" on {grant.prefix}*" if grant.prefix else ""),
            )
            for kind, actions in ROLES[grant.role]
            if not (grant.prefix and kind.value == "Cluster")
        ]
    return found


class Authorizer:
    """Decides for one process. `now_ms` of each call is epoch ms."""

    def __init__(self, table: AccessTable | None = None) -> None:
        self._table = table or AccessTable()
        self._forget()

    @property
    def table(self) -> AccessTable:
        """The users and policies in force."""
        return self._table

    @property
    def until_ms(self) -> int:
        """Until when (epoch ms) all that was decided stands: the first end of a grant, or never."""
        return NEVER_MS if self._ends_ms is None else self._ends_ms

    def generation(self, now_ms: int) -> object:
        """Another object whenever what was decided before may not be true any more."""
        if self._ends_ms is not None and now_ms >= self._ends_ms:
            self._forget()
        return self._decisions

    def decide(
        self, user: str, needs: Sequence[Need | AnyOf], source: str | None, now_ms: int
    ) -> Decision:
        """Decide a request that needs all of `needs`; refused by the first that is not met.

        `user` may be the name of a token: then the token's user needs the rights, and its scope.
        `source` is the IP address of the socket, "" for a call from the same process. None: it is
        not known, so that policies for networks deny and do not allow.
        """
        if self._ends_ms is not None and now_ms >= self._ends_ms:
            self._forget()
        account = self._table.users.get(user)
        token = self._table.tokens.get(user)
        if token is not None:
            if token.has_expired(now_ms):
                return Decision(False, "the token has expired")
            decision = self.decide(token.user, needs, source, now_ms)
            if not decision.allowed:
                return decision
        elif user != ANONYMOUS:
            if account is None:
                return Decision(False, "the user does not exist")
            if not account.enabled:
                return Decision(False, "the user is disabled")
            if account.administers:
                return Decision(True, f"role {UserRole.ADMINISTRATOR}")
        allowed = Decision(True, "no right is needed")
        matched = self._matched(source)
        for need in needs:
            decision = self._remembered(user, need, matched, now_ms)
            if not decision.allowed:
                return decision
            allowed = decision
        return allowed

    def would_allow(self, user: str, need: Need) -> list[str]:
        """What comes nearest to allowing a refused need: the user's rights on the same resource.

        For `kourou user why`: rights that fit but for the source, then those of other actions.
        """
        rights = entries_of(self._table, user)
        fitting = [one for one in rights if one.effect is Effect.ALLOW and one.concerns(need)]
        others = [
            one
            for one in rights
            if one.effect is Effect.ALLOW
            and one not in fitting
            and one.pattern.covers(need.type, need.name)
        ]
        return [
            *(
                f"{one.origin}, but only from {', '.join(one.networks)}"
                for one in fitting
                if one.networks
            ),
            *(f"{one.origin} allows {', '.join(sorted(one.actions))} only" for one in others),
        ]

    # -- what is remembered -----------------------------------------------------------------------

    def _remembered(
        self, user: str, need: Need | AnyOf, matched: frozenset[str] | None, now_ms: int
    ) -> Decision:
        key = (user, need, matched)
        decision = self._decisions.get(key)
        if decision is None:
            decision = self._decided(user, need, matched, now_ms)
            if len(self._decisions) >= ACCESS_DECISIONS_MAX:
                self._decisions.clear()
            self._decisions[key] = decision
        return decision

    def _forget(self) -> None:
        self._decisions: dict[tuple[str, Need | AnyOf, frozenset[str] | None], Decision] = {}
        self._entries: dict[str, list[AccessEntry]] = {}
        self._sources: dict[str, frozenset[str]] = {}
        self._networks: dict[str, IPv4Network | IPv6Network] = {
            text: ip_network(text)
            for policy in self._table.policies.values()
            for text in policy.networks
        }
        self._ends_ms: int | None = None

    def _matched(self, source: str | None) -> frozenset[str] | None:
        """The networks of policies that a source belongs to: sources alike are decided alike.

        None if the source is not known.
        """
        if source is None:
            return None
        if not self._networks or not source:
            return frozenset()
        found = self._sources.get(source)
        if found is None:
            try:
                address = ip_address(plain_address(source))
            except ValueError:
                found = frozenset()
            else:
                found = frozenset(
                    text for text, network in self._networks.items() if address in network
                )
            if len(self._sources) >= ACCESS_DECISIONS_MAX:
                self._sources.clear()
            self._sources[source] = found
        return found

    def _decided(
        self, user: str, need: Need | AnyOf, matched: frozenset[str] | None, now_ms: int
    ) -> Decision:
        entries = self._entries.get(user)
        if entries is None:
            entries = self._entries[user] = entries_of(self._table, user)
        names = need.needs if isinstance(need, AnyOf) else (need,)
        fitting = [
            (one, [each for each in entries if self._fits(each, one, matched, now_ms)])
            for one in names
        ]
        refusal = "no policy allows it"
        for actions in zip(*(one.actions for one in names), strict=True):
            found = [
                (one, each)
                for (one, rights), action in zip(fitting, actions, strict=True)
                for each in rights
                if action in each.actions
            ]
            denying = [each for _, each in found if each.effect is Effect.DENY]
            if denying:
                refusal = denying[0].origin
            elif found:
                met, right = found[0]
                return Decision(True, right.origin, met)
        return Decision(False, refusal, names[-1])

    def _fits(
        self, one: AccessEntry, need: Need, matched: frozenset[str] | None, now_ms: int
    ) -> bool:
        """True if a right counts for this need, source and time; notes when it ends."""
        if not one.concerns(need):
            return False
        if one.networks:
            if matched is None and one.effect is Effect.ALLOW:
                return False
            if matched is not None and matched.isdisjoint(one.networks):
                return False
        if one.until_ms is not None:
            if now_ms >= one.until_ms:
                return False
            self._ends_ms = min(self._ends_ms or one.until_ms, one.until_ms)
        return True
