"""Letters, names and switches of the administrative commands, beside those of mqadmin."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kourou.cli.admin import commands
from kourou.cli.admin.options import COMMANDS, Switch, names_of, options_of
from kourou.cli.main import main

ROOT = Path(__file__).parents[4]
HELP = ROOT / "tests/golden/rocketmq-4.9.8/mqadmin-help.txt"
PAGE = ROOT / "docs/mqadmin.md"

LATER = {
    "updateAclConfig",
    "deleteAclConfig",
    "clusterAclConfigVersion",
    "updateGlobalWhiteAddr",
    "getAclConfig",
}
"""They administer access control lists, which this version does not have."""


def mqadmin() -> dict[str, dict[str, str]]:
    """RocketMQ's verbs: verb -> letter -> long name."""
    found: dict[str, dict[str, str]] = {}
    for part in HELP.read_text(encoding="utf-8").split("== ")[1:]:
        verb, _, rest = part.partition("\n")
        options = re.findall(r"^ -(\w),--([\w ]+?) *(?:<arg>|  )", rest, re.MULTILINE)
        found[verb] = {letter: name for letter, name in options if letter != "h"}
    return found


MQADMIN = mqadmin()


def test_all_of_mqadmins_verbs_are_here() -> None:
    assert len(MQADMIN) == 57
    assert set(MQADMIN) - set(COMMANDS) == LATER
    assert commands.FAMILIES


@pytest.mark.parametrize("verb", sorted(set(MQADMIN) - LATER))
def test_a_verb_takes_mqadmins_letters(verb: str) -> None:
    taken = {name for _, option in options_of(COMMANDS[verb]).values() for name in names_of(option)}
    missing = [letter for letter in MQADMIN[verb] if f"-{letter}" not in taken]
    assert missing == []


@pytest.mark.parametrize("verb", sorted(COMMANDS))
def test_every_command_answers_in_json_too(verb: str) -> None:
    options = options_of(COMMANDS[verb]).values()
    assert any("--json" in names_of(option) for _, option in options)
    letters = [name for _, option in options for name in names_of(option)]
    assert len(letters) == len(set(letters)), "one letter, one meaning"


def test_the_page_lists_every_command_and_what_is_missing() -> None:
    text, _ = PAGE.read_text(encoding="utf-8").split("## RocketMQ's own mqadmin")
    rows = re.findall(r"^\| `([\w -]+)` \|", text, re.MULTILINE)
    assert sorted(rows) == sorted(COMMANDS)
    absent = PAGE.read_text(encoding="utf-8").split("## Not supported")[1]
    assert [verb for verb in LATER if f"`{verb}`" not in absent] == []


@pytest.mark.parametrize(
    ("words", "value"),
    [([], "False"), (["-r"], "True"), (["-r", "true"], "True"), (["-r", "false"], "False")],
)
@pytest.mark.parametrize("behind", [[], ["-c", "C"]])
def test_a_switch_stands_alone_or_before_true_and_false(
    words: list[str], value: str, behind: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from kourou.cli.admin import actions, group_commands

    asked = []

    def delete(_client: object, group: str, **how: object) -> None:
        asked.append((group, str(how["remove_offsets"]), how["cluster"]))

    monkeypatch.setattr(actions, "delete_group", delete)
    monkeypatch.setattr(group_commands, "report", lambda _, ask, **_how: ask(None) or 0)
    assert main(["admin", "deleteSubGroup", *words, *behind, "-g", "g"]) == 0
    assert asked == [("g", value, "C" if behind else None)]


def test_a_switch_takes_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["admin", "deleteSubGroup", "-g", "g", "-r", "perhaps"]) == 2
    assert "perhaps" in capsys.readouterr().err
    assert Switch.TRUE.on
    assert not Switch.FALSE.on


@pytest.mark.parametrize("option", ["-w", "-r"])
@pytest.mark.parametrize("count", ["0", "16385"])
def test_as_many_queues_as_a_topic_may_have(
    option: str, count: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Wrong usage is found here, and nobody is asked: nothing listens at this port."""
    assert main(["admin", "updateTopic", "-n", "127.0.0.1:1", "-t", "T", option, count]) == 2
    assert "16384" in capsys.readouterr().err or count == "0"
