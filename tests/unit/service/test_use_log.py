"""Counts of requests by right in files of a day, and policies that are tried on them."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from kourou.access.authorizer import AccessTable
from kourou.access.model import Action, AnyOf, Effect, Need, Policy, ResourceType, User
from kourou.authorization.access_table import AccessAggregate
from kourou.authorization.access_uses import (
    AccessUses,
    UseLine,
    UsesCounted,
    UsesQuestion,
    changed_table,
    network_of,
)
from kourou.model.limits import (
    ACCESS_USES_DAYS,
    ACCESS_USES_RIGHTS_MAX,
    ACCESS_USES_USER_MAX,
)
from kourou.model.units import DAY_MS
from kourou.protocol.bodies.access_bodies import PolicyChange, PolicyChangeKind, policy_from
from kourou.service import use_log
from kourou.service.use_log import UseLog, try_uses

NOW_MS = 20_000 * DAY_MS + 7 * 3_600_000
PUB = Need(ResourceType.TOPIC, "orders", (Action.PUB,))
SUB = Need(ResourceType.TOPIC, "orders", (Action.SUB,))
GROUP = Need(ResourceType.GROUP, "g", (Action.SUB,))


def line(
    user: str = "till", *needs: Need, count: int = 1, at_ms: int = NOW_MS, **fields
) -> UseLine:
    kinds = tuple((one,) for one in needs or (PUB,))
    return UseLine(user=user, needs=kinds, count=count, last_ms=at_ms, **fields)


def table(*policies: Policy) -> AccessTable:
    return AccessTable(
        users={"till": User(name="till"), "eve": User(name="eve")},
        policies={one.id: one for one in policies},
    )


def allow(user: str, resource: str, *actions: str, networks: tuple[str, ...] = ()) -> Policy:
    return policy_from(user, resource, actions, Effect.ALLOW, networks=networks)


EMPTY = table()


def asked(folder: Path, proposed: AccessTable = EMPTY, now: AccessTable = EMPTY, **how):
    since_ms = how.get("since_ms")
    return try_uses(folder, UsesQuestion(now, proposed, how.get("wall_ms", NOW_MS), since_ms))


def test_requests_are_counted_by_user_right_and_network() -> None:
    uses = AccessUses()
    for source in ("10.1.2.3", "10.1.2.77", "10.1.3.1", None):
        use = uses.of("till", (PUB, GROUP), source)
        use.count += 2
        use.last_ms, use.source = 5, source
    taken = uses.take()
    assert [(one.network, one.count, one.source) for one in taken] == [
        ("10.1.2.0/24", 4, "10.1.2.77"),
        ("10.1.3.0/24", 2, "10.1.3.1"),
        ("", 2, None),
    ]
    assert taken[0].needs == ((PUB,), (GROUP,))
    assert uses.take() == []
    uses.of("till", (PUB, GROUP), "10.1.2.3").count += 1
    assert [one.count for one in uses.take()] == [1], "from zero"
    both = uses.of("till", (AnyOf((PUB, GROUP)),), "")
    both.count = 1
    assert uses.take()[0].needs == ((PUB, GROUP),)


@pytest.mark.parametrize(
    ("source", "network"),
    [
        ("10.1.2.3", "10.1.2.0/24"),
        ("::ffff:10.1.2.3", "10.1.2.0/24"),
        ("2001:db8:1:2:3::4", "2001:db8:1:2::/64"),
        ("", ""),
        (None, ""),
        ("local", ""),
    ],
)
def test_networks(source: str | None, network: str) -> None:
    assert network_of(source) == network


def test_a_user_with_too_many_kinds_takes_no_place_of_others() -> None:
    uses = AccessUses()
    for number in range(2 * ACCESS_USES_USER_MAX):
        need = Need(ResourceType.TOPIC, f"t{number}", (Action.PUB,))
        uses.of("anonymous", (need,), "10.0.0.1").count += 1
    uses.of("till", (PUB,), "10.0.0.1").count += 1
    assert len(uses) == ACCESS_USES_USER_MAX + 2
    taken = uses.take()
    rest = [one for one in taken if not one.needs]
    assert [(one.user, one.count) for one in rest] == [("anonymous", ACCESS_USES_USER_MAX)]
    assert [one.needs for one in taken if one.user == "till"] == [((PUB,),)]
    assert uses.full
    uses.forget()
    assert len(uses) == 0
    assert not uses.full


@pytest.mark.fault
def test_a_request_that_needs_too_many_rights_is_counted_by_user(tmp_path: Path) -> None:
    """Whoever reaches the port names as many topics as fit into a body."""
    most = ACCESS_USES_RIGHTS_MAX
    needs = [Need(ResourceType.TOPIC, f"t{number}", (Action.SUB,)) for number in range(most + 1)]
    uses = AccessUses()
    for some in (needs, needs[1:]):
        uses.of("anonymous", tuple(some), "10.0.0.1").count += 1
    taken = uses.take()
    assert [(len(one.needs), one.count) for one in taken] == [(0, 1), (most, 1)]
    assert not uses.full
    UseLog(tmp_path).record(UsesCounted([line("eve", *needs), line("eve", *needs[1:])], NOW_MS))
    found = asked(tmp_path).tried
    assert (found.requests, found.untried) == (2, 1)


@pytest.mark.fault
def test_a_user_takes_no_place_of_others_in_a_day_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counts are forgotten each minute if there are too many kinds, and the day has 1,440."""
    monkeypatch.setattr(use_log, "ACCESS_USES_MAX", 6)
    monkeypatch.setattr(use_log, "ACCESS_USES_USER_MAX", 2)
    for start in range(2):
        log = UseLog(tmp_path)
        for number in range(4):
            need = Need(ResourceType.TOPIC, f"t{start}-{number}", (Action.PUB,))
            log.record(UsesCounted([line("eve:token1", need), line("eve", need)], NOW_MS))
    log.record(UsesCounted([line(), line("till", SUB), line("till", GROUP)], NOW_MS))
    found = asked(tmp_path).tried
    assert (found.requests, found.untried) == (19, 15)
    assert sorted((one.user, one.count) for one in found.uses) == [
        *(("eve", 1), ("eve:token1", 1)),
        *(("till", 1), ("till", 1)),
    ]


def test_counts_of_a_day_are_added_and_survive_a_restart(tmp_path: Path) -> None:
    for _ in range(2):
        log = UseLog(tmp_path / "uses")
        log.record(UsesCounted([line(count=3), line("eve", SUB)], NOW_MS))
        log.record(UsesCounted([line(count=2, at_ms=NOW_MS + 1, source="10.0.0.9")], NOW_MS))
    [file] = (tmp_path / "uses").iterdir()
    assert file.name == "2024-10-04.jsonl"
    assert file.stat().st_mode & 0o777 == 0o600
    lines = [msgspec.json.decode(one, type=UseLine) for one in file.read_bytes().splitlines()]
    assert [(one.user, one.count, one.last_ms, one.source) for one in lines] == [
        ("till", 10, NOW_MS + 1, "10.0.0.9"),
        ("eve", 2, NOW_MS, None),
    ]


def test_seven_days_are_kept_and_tried(tmp_path: Path) -> None:
    log = UseLog(tmp_path)
    days = range(ACCESS_USES_DAYS + 3)
    for day in days:
        at_ms = NOW_MS + day * DAY_MS
        log.record(UsesCounted([line(at_ms=at_ms), line("eve", count=day, at_ms=at_ms)], at_ms))
    assert len(list(tmp_path.iterdir())) == ACCESS_USES_DAYS == 8
    wall_ms = NOW_MS + days[-1] * DAY_MS
    found = asked(tmp_path, wall_ms=wall_ms, since_ms=wall_ms - 7 * DAY_MS)
    assert found.tried.requests == 8 + sum(days[-8:])
    assert found.since_ms == wall_ms - 7 * DAY_MS
    later = asked(tmp_path, wall_ms=wall_ms, since_ms=wall_ms - DAY_MS + 1)
    assert later.tried.requests == 1 + days[-1]


def test_what_a_policy_would_refuse_and_allow(tmp_path: Path) -> None:
    lines = [
        line(count=1_204, source="10.1.2.3", network="10.1.2.0/24"),
        line("till", SUB, GROUP, count=9, source="10.1.2.3", network="10.1.2.0/24"),
        line("eve", PUB, count=30),
        UseLine(user="eve", count=4, last_ms=NOW_MS),
    ]
    UseLog(tmp_path).record(UsesCounted(lines, NOW_MS))
    now = table(
        allow("till", "Topic:*", "Pub", "Sub"),
        allow("till", "Group:*", "Sub"),
    )
    same = asked(tmp_path, now, now).tried
    assert (same.requests, same.refused, same.untried) == (1_247, 30, 4)
    assert [(one.user, one.allowed, one.was_allowed) for one in same.uses] == [
        ("eve", False, False)
    ]
    proposed = table(
        allow("till", "Topic:*", "Pub", "Sub"),
        allow("till", "Group:*", "Sub", networks=("10.1.3.0/24",)),
        policy_from("till", "Topic:orders", ("Pub",), Effect.DENY),
        allow("eve", "Topic:orders", "Pub"),
    )
    trial = asked(tmp_path, proposed, now).tried
    assert [
        (one.user, one.need, one.allowed, one.was_allowed, one.count) for one in trial.uses
    ] == [
        ("till", "Pub on Topic:orders", False, True, 1_204),
        ("till", "Sub on Group:g", False, True, 9),
        ("eve", "Pub on Topic:orders", True, False, 30),
    ]
    assert trial.refused == 1_213
    assert trial.uses[0].by == "policy till/Topic:orders/deny"


def test_changes_are_those_of_the_commands() -> None:
    access = AccessAggregate(users={"till": User(name="till")})
    access.policies["x"] = allow("till", "Topic:a", "Pub")

    def change(kind: str, resource: str = "", *actions: str) -> PolicyChange:
        return PolicyChange(
            user="till", change=PolicyChangeKind(kind), resource=resource, actions=actions
        )

    access.policies = {one.id: one for one in access.policies.values()}
    denied = changed_table(access, [change("deny", "Topic:a", "Pub")])
    assert [str(one.effect) for one in denied.policies.values()] == ["deny"], "in place of it"
    more = changed_table(access, [change("allow", "Topic:b", "Pub")])
    assert len(more.policies) == 2
    assert changed_table(access, [change("revoke", "Topic:b")]).policies == access.policies
    for none in ("", "Topic:a"):
        assert not changed_table(access, [change("revoke", none)]).policies
    assert len(access.policies) == 1, "nothing was changed"


@pytest.mark.fault
def test_lines_that_cannot_be_read_and_files_that_cannot_be_written(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = UseLog(tmp_path)
    log.record(UsesCounted([line()], NOW_MS))
    [file] = tmp_path.iterdir()
    file.write_bytes(b"{\n\xff\n" + file.read_bytes() + b'{"user":"e')
    (tmp_path / "other.jsonl").write_bytes(b"{}")
    assert asked(tmp_path).tried.requests == 1
    folder = tmp_path / "file"
    folder.write_bytes(b"")
    unable = UseLog(folder)
    unable.record(UsesCounted([line()], NOW_MS))
    assert caplog.text.count("uses-write-failed: ") == 1
    folder.unlink()
    unable.record(UsesCounted([line(count=2)], NOW_MS))
    assert asked(folder).tried.requests == 3, "it kept them"


def test_a_file_has_a_bounded_number_of_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(use_log, "ACCESS_USES_MAX", 3)
    log = UseLog(tmp_path)
    for number in range(40):
        need = Need(ResourceType.TOPIC, f"t{number}", (Action.PUB,))
        log.record(UsesCounted([line(f"u{number}", need)], NOW_MS))
    [file] = tmp_path.iterdir()
    assert len(file.read_bytes().splitlines()) == 7
    assert asked(tmp_path).tried.requests == 40
