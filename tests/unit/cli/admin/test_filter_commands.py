"""The family `filter` of the commands: its verbs, and that pages and helps know them."""

from __future__ import annotations

import pytest

from kourou.cli.admin import filter_commands
from kourou.cli.admin.options import COMMANDS
from kourou.cli.main import main

VERBS = ("list", "show", "put", "enable", "disable", "rollback", "policy", "delete", "try", "stats")


def test_the_verbs_are_a_family_of_their_own(capsys: pytest.CaptureFixture[str]) -> None:
    names = [name for name in COMMANDS if name.startswith("filter ")]
    assert names == [f"filter {verb}" for verb in VERBS]
    assert main(["admin", "filter", "--help"]) == 0
    told = capsys.readouterr().out.partition("Commands:")[2].splitlines()[1:]
    assert [line.split()[0] for line in told] == list(VERBS)
    assert main(["admin", "--help"]) == 0
    listed = capsys.readouterr().out
    assert "\n  filter " in listed
    assert "\n  rollback " not in listed


def test_a_count_is_no_more_than_a_trial_may_have() -> None:
    from kourou.model.limits import FILTER_TRIED_MESSAGES_MAX

    assert FILTER_TRIED_MESSAGES_MAX == filter_commands.TRIED_MAX
