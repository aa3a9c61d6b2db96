"""Everything `kourou admin` does is done over HTTP, or it is said why not."""

import pytest

import kourou.cli.admin.commands  # noqa: F401 - it fills COMMANDS
from kourou.cli.admin.options import COMMANDS
from kourou_console.operations import OPERATIONS
from kourou_console.verbs import LEFT_OUT, VERBS


def test_every_verb_has_its_operations_or_a_reason() -> None:
    assert set(VERBS) | set(LEFT_OUT) == set(COMMANDS)
    assert not set(VERBS) & set(LEFT_OUT)
    assert all(LEFT_OUT.values())


def test_the_operations_are_there() -> None:
    names = {one.name for one in OPERATIONS}
    assert {name for every in VERBS.values() for name in every} <= names


def test_whatever_changes_something_is_no_get() -> None:
    wrong = [one.name for one in OPERATIONS if one.changes and one.method == "GET"]
    assert not wrong


def test_the_page_has_every_verb_with_its_operations(request: pytest.FixtureRequest) -> None:
    page = (request.config.rootpath / "docs/http-admin.md").read_text(encoding="utf-8")
    places = {one.name: f"`{one.method} {one.path}`" for one in OPERATIONS}
    for verb, names in VERBS.items():
        assert f"| `{verb}` | {', '.join(places[name] for name in names)} |\n" in page
