"""The catalogue of operator verbs is complete: command line, HTTP API and pages agree with it."""

from __future__ import annotations

from collections import Counter

import pytest

import kourou.cli.commands  # noqa: F401 - it fills the commands of `kourou admin`
from kourou.cli.admin import command
from kourou.operations import CATALOGUE, COMMANDS, Right, Subject, right_of, verbs_of
from kourou_console.operations import OPERATIONS


def test_a_verb_is_listed_once() -> None:
    assert max(Counter(one.name for one in CATALOGUE).values()) == 1


def test_every_command_performs_verbs_of_the_catalogue() -> None:
    assert set(command.COMMANDS) == COMMANDS


def test_every_verb_is_an_operation_of_the_http_api() -> None:
    assert {one.name for one in OPERATIONS} == {one.name for one in CATALOGUE if one.over_http}


OWN = {"set_own_password", "create_own_token", "own_tokens", "revoke_own_token"}
"""What a user does about itself."""


def test_all_verbs_about_users_need_the_right_admin_except_about_oneself() -> None:
    users = [one for one in CATALOGUE if one.subject is Subject.USERS]
    assert {one.name for one in users if one.right is not Right.ADMIN} == OWN
    assert not any(one.over_http for one in users if one.name in OWN)
    assert {name for one in users for name in one.commands} == {
        name for name in COMMANDS if name.startswith("user ")
    }


def test_only_requests_without_a_change_need_no_more_than_read() -> None:
    """What is about users needs ADMIN to read it, too."""
    users = {one.name for one in CATALOGUE if one.subject is Subject.USERS}
    wrong = [
        one.name
        for one in OPERATIONS
        if one.name not in users and (one.method == "GET") != (one.right is Right.READ)
    ]
    assert wrong == []


def test_an_unlisted_verb_requires_the_highest_right() -> None:
    assert right_of("topics") is Right.READ
    assert right_of("frobnicate") is max(Right)


def test_the_page_lists_every_command_with_its_operations(
    request: pytest.FixtureRequest,
) -> None:
    page = (request.config.rootpath / "docs/http-admin.md").read_text(encoding="utf-8")
    paths = {one.name: f"`{one.method} {one.path}`" for one in OPERATIONS}
    for name in COMMANDS:
        if not all(one.over_http for one in verbs_of(name)):
            continue
        listed = ", ".join(paths[one.name] for one in verbs_of(name))
        assert f"| `{name}` | {listed} |\n" in page, "run .venv/bin/python docs/generate.py"
