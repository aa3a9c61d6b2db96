"""What is shown of the past, and what is refused before anybody is asked."""

from __future__ import annotations

import pytest

from kourou.cli import main as command_line
from kourou.cli.history import CHANGE_LENGTH_MAX, _state_report, change_of
from kourou.client.admin.history import HistoryEvent, StateAt

BEFORE = {"name": "orders", "write_queue_nums": 4, "perm": 6}
AFTER = {"name": "orders", "write_queue_nums": 8, "perm": 4}


def decision(kind: str, undoes: int | None = None, **fields: object) -> HistoryEvent:
    return HistoryEvent(
        "broker-a", 7, 1_000, "topic/orders", kind, fields, "ann", "why", "", undoes
    )


@pytest.mark.parametrize(
    ("kind", "fields", "text"),
    [
        ("TopicPut", {"topic": AFTER, "before": None}, "created"),
        ("TopicPut", {"topic": AFTER, "before": BEFORE}, "write_queue_nums 4 → 8, perm 6 → 4"),
        ("GroupPut", {"group": {"a": True}, "before": {"a": False}}, "a false → true"),
        ("TopicDeleted", {"before": AFTER}, "deleted"),
        ("SettingChanged", {"name": "x", "value": 24, "before": None}, "- → 24"),
        ("SettingChanged", {"name": "x", "value": None, "before": "a"}, "a → -"),
        (
            "OffsetsReset",
            {"topic": "orders", "offsets": {"0": 0, "1": 5}, "before": {"0": 9, "1": 5}},
            "orders: queue 0 9 → 0",
        ),
        ("ProgressRecorded", {"offsets": {"a": {"0": 1}}}, '{"offsets": {"a": {"0": 1}}}'),
        ("OfANewerVersion", {"topic": 7, "before": 3}, '{"topic": 7, "before": 3}'),
        ("TopicPut", {"topic": "not a table"}, '{"topic": "not a table"}'),
    ],
)
def test_a_change_in_a_few_words(kind: str, fields: dict[str, object], text: str) -> None:
    assert change_of(decision(kind, **fields)) == text
    assert change_of(decision(kind, 5, **fields)) == f"undoes 5: {text}"


def test_a_long_change_is_cut() -> None:
    text = change_of(decision("Long", a="x" * 1_000))
    assert len(text) == CHANGE_LENGTH_MAX
    assert text.endswith("…")


@pytest.mark.parametrize(
    ("aggregate", "value", "lines"),
    [
        ("topic/orders", {"perm": 6}, ["topic/orders  perm", "6"]),
        ("topic/orders", None, ["does not exist"]),
        ("setting/traceOn", None, ["as in the configuration file"]),
        ("setting/traceOn", False, ["value  no"]),
        ("progress/till", {"orders": {"0": 5}}, ["orders 0", "5"]),
        (
            "",
            {
                "topics": {"orders": {"perm": 6}},
                "groups": {},
                "settings": {"traceOn": True},
                "progress": {"till": {"orders": {"3": 9}}},
            },
            ["topic/orders", "setting/traceOn", "progress/till", "orders 3"],
        ),
    ],
)
def test_a_state_as_a_table(aggregate: str, value: object, lines: list[str]) -> None:
    report = _state_report(StateAt("broker-a", aggregate, value, 8, 0))
    text = "\n".join(report.lines())
    for line in lines:
        assert line in text
    assert text.endswith("broker-a after 8 events, as of the beginning")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["history", "orders"], "'orders' does not name anything with a history (kind/name, like"),
        (["history", "--max", "0"], "see `kourou history --help`"),
        (["history", "--type", "a b"], "'a b' is not an event type"),
        (["history", "--until", "tomorrow"], "'tomorrow' is not a time"),
        (["stateAt", "log/retention"], "log/retention has no state"),
        (["stateAt", "--at", "1", "--offset", "1"], "give a time or an event number, not both"),
        (["stateAt", "--offset", "-1"], "see `kourou stateAt --help`"),
        (["undo"], "missing argument 'offset'; see `kourou undo --help`"),
        (["undo", "last"], "see `kourou undo --help`"),
        (["undo", "1", "--reason", "x" * 1_025], "the reason has 1025 characters"),
    ],
)
def test_wrong_arguments_are_one_sentence(
    arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing listens there, so nobody can have been asked."""
    where = ["-n", "127.0.0.1:1"] if len(arguments) > 1 else []
    assert command_line.main([*arguments, *where]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("kourou: ")
    assert sentence.lower() in said.err.lower()
    assert said.err.count("\n") == 1
