"""Proposes policies for requests that were refused, as commands for a shell.

Names in refused requests come from clients. A name that is not plain text, or could be read as a
pattern, is therefore never part of a command, and what is part of one is quoted.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass, field

from kourou.access.model import (
    ANONYMOUS,
    Action,
    Effect,
    Pattern,
    Policy,
    ResourceType,
    in_order,
    plain_address,
)
from kourou.cli.admin.report import printable
from kourou.errors import BadRequest
from kourou.protocol.bodies.access_bodies import Refusal

_NEED = re.compile(rf"(\w+(?: or \w+)*) on ({'|'.join(ResourceType)}):(.*)", re.DOTALL)


@dataclass(slots=True)
class _Proposal:
    """The actions that a user lacks on one resource, and from where they were requested."""

    actions: set[Action] = field(default_factory=set)
    sources: set[str] = field(default_factory=set)
    count: int = 0


def proposals(
    refusals: Iterable[Refusal], users: Collection[str], policies: Iterable[Policy]
) -> list[str]:
    """Return commands that allow what was refused, then comments about what they cannot allow."""
    known = {(one.user, one.resource, one.effect): one for one in policies}
    wanted: dict[tuple[str, Pattern], _Proposal] = {}
    comments: dict[str, int] = {}
    for one in refusals:
        found = _resource_of(one, users)
        if isinstance(found, str):
            comments[found] = comments.get(found, 0) + one.count
            continue
        pattern, action = found
        deny = known.get((one.user, pattern, Effect.DENY))
        if deny is not None:
            text = f"{one.user} is denied {', '.join(deny.actions)} on {pattern} by a policy"
            comments[text] = comments.get(text, 0) + one.count
            continue
        proposal = wanted.setdefault((one.user, pattern), _Proposal())
        proposal.actions.add(action)
        proposal.sources.add(one.source)
        proposal.count += one.count
    commands = [
        _command(user, pattern, wanted[user, pattern], known.get((user, pattern, Effect.ALLOW)))
        for user, pattern in sorted(wanted, key=lambda key: (key[0], str(key[1])))
    ]
    return commands + [
        f"# {_times(count)}: {printable(text)}" for text, count in sorted(comments.items())
    ]


def _resource_of(one: Refusal, users: Collection[str]) -> tuple[Pattern, Action] | str:
    """The resource and the action that were missing, or why no policy can be proposed."""
    need = _NEED.fullmatch(one.need)
    if need is None:
        who = one.user or "a client"
        return f"{who} from {one.source}: {one.request}: {one.by}"
    if one.user == ANONYMOUS or one.user not in users:
        return (
            f"{one.user} from {one.source} needs {one.need}: give these clients a user and"
            " credentials"
        )
    if one.by.endswith(f"/{Effect.DENY}"):
        return f"{one.user} from {one.source} needs {one.need}, denied by {one.by}"
    actions, kind, name = need[1], ResourceType(need[2]), need[3]
    if kind is ResourceType.USER:
        return f"{one.user} from {one.source} needs {one.need}: only administrators change users"
    if not name.isprintable() or "*" in name:
        return f"{one.user} from {one.source} needs {one.need}: decide that yourself"
    try:
        pattern = Pattern.parse(f"{kind}:{name or '*'}")
        return pattern, Action(actions.split(" or ")[0])
    except (BadRequest, ValueError):
        return f"{one.user} from {one.source} needs {one.need}"


def _command(user: str, pattern: Pattern, lack: _Proposal, before: Policy | None) -> str:
    """The command for one resource. It replaces the policy `before`, so it repeats its rights."""
    actions, networks = set(lack.actions), list[str]()
    if before is not None:
        actions |= set(before.actions)
        if before.networks:
            networks = [*before.networks, *_networks(lack.sources)]
    words = ["kourou", "user", "allow", user, ",".join(in_order(actions)), str(pattern)]
    for network in dict.fromkeys(networks):
        words += ["--from", network]
    if before is not None and before.until_ms is not None:
        words += ["--until", str(before.until_ms)]
    return f"{shlex.join(words)}  # {_times(lack.count)}"


def _networks(sources: Iterable[str]) -> list[str]:
    """Addresses as networks; other sources have none."""
    found = []
    for source in sorted(sources):
        with suppress(ValueError):
            address = plain_address(source)
            found.append(f"{address}/{128 if ':' in address else 32}")
    return found


def _times(count: int) -> str:
    return "1 request" if count == 1 else f"{count} requests"
