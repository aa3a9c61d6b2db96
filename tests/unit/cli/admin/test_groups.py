"""Commands for groups: unknown groups, empty lists of producers and dead letters."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kourou.cli.admin import groups as group_commands
from kourou.cli.admin.command import Switch
from kourou.errors import GroupNotFound
from kourou.model.subscription import GroupConfig


class Groups:
    """A cluster's groups."""

    def __init__(self) -> None:
        self.deleted: list[tuple[str, bool]] = []

    def list(self) -> Any:
        return [GroupConfig("till")]

    def delete(
        self, group: str, *, remove_offsets: bool, broker: str | None, cluster: str | None
    ) -> None:
        self.deleted.append((group, remove_offsets))


def client_with(**families: object) -> Any:
    return SimpleNamespace(admin=SimpleNamespace(**families))


def test_an_unknown_group_is_not_deleted() -> None:
    groups = Groups()
    client = client_with(groups=groups)
    with pytest.raises(GroupNotFound, match="group 'tlil' not found; nothing was deleted"):
        group_commands.delete_group(client, "tlil")
    assert groups.deleted == []
    report = group_commands.delete_group(client, "till")
    assert (report.remarks, groups.deleted) == (["deleted till"], [("till", False)])


def test_offsets_that_outlived_their_group_can_be_deleted() -> None:
    groups = Groups()
    client = client_with(groups=groups)
    report = group_commands.delete_group(client, "old", offsets=Switch.TRUE)
    assert groups.deleted == [("old", True)]
    assert report.remarks == ["group old not found; its offsets, if any, were deleted"]


def test_a_group_without_dead_letters_has_none_to_resend() -> None:
    def resend(_group: str, chosen: list[object]) -> dict[str, object]:
        assert not chosen
        return {}

    dead_letters = SimpleNamespace(of=lambda _group, count_max: [], resend=resend)
    report = group_commands.resend_dead_letters(client_with(dead_letters=dead_letters), "till")
    assert (report.remarks, report.failed) == (["the group till has no dead letters"], False)


def test_the_list_of_producers_may_be_empty() -> None:
    members = SimpleNamespace(all_producers=lambda _broker: {})
    report = group_commands.all_producers(client_with(members=members))
    assert (report.rows, report.remarks) == ([], ["no producer is connected"])
