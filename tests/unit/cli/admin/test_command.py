"""Options, switches and common options of the admin commands, compared with those of mqadmin."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar

import pytest

import kourou.cli.commands  # it fills COMMANDS
import kourou.sync
from kourou.cli.admin import command as command_module
from kourou.cli.admin.command import COMMANDS, Switch, command, names_of, options_of
from kourou.cli.admin.report import Report
from kourou.cli.main import main
from kourou.model.subscription import GroupConfig

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
    """RocketMQ's commands: name -> short option -> long option."""
    found: dict[str, dict[str, str]] = {}
    for part in HELP.read_text(encoding="utf-8").split("== ")[1:]:
        verb, _, rest = part.partition("\n")
        options = re.findall(r"^ -(\w),--([\w ]+?) *(?:<arg>|  )", rest, re.MULTILINE)
        found[verb] = {short: name for short, name in options if short != "h"}
    return found


MQADMIN = mqadmin()


def test_all_of_mqadmins_verbs_are_here() -> None:
    assert len(MQADMIN) == 57
    assert set(MQADMIN) - set(COMMANDS) == LATER


@pytest.mark.parametrize("verb", sorted(set(MQADMIN) - LATER))
def test_a_command_has_mqadmins_short_options(verb: str) -> None:
    known = {name for _, option in options_of(COMMANDS[verb]).values() for name in names_of(option)}
    missing = [short for short in MQADMIN[verb] if f"-{short}" not in known]
    assert missing == []


@pytest.mark.parametrize("verb", sorted(COMMANDS))
def test_every_command_answers_in_json_too(verb: str) -> None:
    options = options_of(COMMANDS[verb]).values()
    assert any("--json" in names_of(option) for _, option in options)
    names = [name for _, option in options for name in names_of(option)]
    assert len(names) == len(set(names)), "one option, one meaning"


def test_the_page_lists_every_command_and_what_is_missing() -> None:
    text, _ = PAGE.read_text(encoding="utf-8").split("## RocketMQ's own mqadmin")
    rows = re.findall(r"^\| `([\w -]+)` \|", text, re.MULTILINE)
    assert sorted(rows) == sorted(
        name for name in COMMANDS if not name.startswith(("user ", "quota "))
    )
    absent = PAGE.read_text(encoding="utf-8").split("## Not supported")[1]
    assert [verb for verb in LATER if f"`{verb}`" not in absent] == []


@pytest.mark.parametrize(
    ("words", "value"),
    [([], False), (["-r"], True), (["-r", "true"], True), (["-r", "false"], False)],
)
@pytest.mark.parametrize("following", [[], ["-c", "C"]])
def test_a_switch_stands_alone_or_before_true_and_false(
    words: list[str], value: bool, following: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    deleted = []
    groups = SimpleNamespace(
        list=lambda: [GroupConfig("g")],
        delete=lambda group, **how: deleted.append((group, how["remove_offsets"], how["cluster"])),
    )
    use(monkeypatch, SimpleNamespace(admin=SimpleNamespace(groups=groups)))
    assert main(["admin", "deleteSubGroup", *words, *following, "-g", "g"]) == 0
    assert deleted == [("g", value, "C" if following else None)]


def use(monkeypatch: pytest.MonkeyPatch, client: object) -> None:
    """Let commands use this client instead of one that is connected to a cluster."""

    @contextlib.contextmanager
    def opened(*_: object, **__: object) -> Iterator[object]:
        yield client

    monkeypatch.setattr(kourou.sync, "Client", opened)


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
    """Wrong usage is found before any request: nothing listens at this port."""
    assert main(["admin", "updateTopic", "-n", "127.0.0.1:1", "-t", "T", option, count]) == 2
    assert "16384" in capsys.readouterr().err or count == "0"


# -- declaring a command --------------------------------------------------------------------------


def test_common_options_are_placed_at_the_star_and_at_the_end() -> None:
    names = {
        name: list(options_of(COMMANDS[name])) for name in ("deleteTopic", "promote", "statsAll")
    }
    assert names == {
        "deleteTopic": ["topic", "namesrv", "cluster", "json"],
        "promote": ["broker", "broker_id", "address", "force", "namesrv", "json"],
        "statsAll": ["namesrv", "topic", "active", "interval", "rounds", "json"],
    }


def test_a_command_that_the_catalogue_lacks_is_refused() -> None:
    with pytest.raises(KeyError, match="frobnicate"):
        command("frobnicate")


def test_a_repeated_command_ends_after_its_rounds(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Pause:
        """An event that is never set, without the wait."""

        waits: ClassVar[list[float]] = []

        def wait(self, seconds: float) -> None:
            self.waits.append(seconds)

    counts = iter((3, 2, 1))

    def lag(client: object) -> Report:
        return Report(remarks=[f"lag {next(counts)}"], failed=True)

    use(monkeypatch, None)
    monkeypatch.setattr(command_module.threading, "Event", Pause)
    code = command_module.run_command(lag, namesrv=None, as_json=False, interval=5, rounds=2)
    assert (code, Pause.waits) == (1, [5])
    assert capsys.readouterr().out == "lag 3\nlag 2\n"
