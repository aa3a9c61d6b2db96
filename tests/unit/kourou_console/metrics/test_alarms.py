"""Each alarm is raised for its reason, says what to do, and is not raised for what is unknown."""

import pytest

from kourou_console.metrics.alarms import (
    AlarmBook,
    AlarmInput,
    AlarmThresholds,
    BrokerState,
    Raised,
    ReplicaState,
    alarms,
)

LIMITS = AlarmThresholds(0.75, 100, 2, 1_000)


def raised(look: AlarmInput) -> list[Raised]:
    found = alarms(look, LIMITS)
    for one in found:
        assert one.title
        assert one.meaning.endswith(".")
        assert "{" not in one.meaning
        assert one.what_to_do.endswith(".")
        assert one.severity in ("warning", "critical")
    return found


def kinds(look: AlarmInput) -> list[str]:
    return [one.kind for one in raised(look)]


def member(**values: object) -> ReplicaState:
    return ReplicaState("b", "1", **{"leads": False, **values})  # type: ignore[arg-type]  # fields by name


@pytest.mark.parametrize(
    ("look", "expected"),
    [
        (AlarmInput(brokers=[BrokerState("b", up=True, disk_used_ratio=0.76)]), ["disk"]),
        (AlarmInput(brokers=[BrokerState("b", up=True, disk_used_ratio=0.75)]), []),
        (AlarmInput(brokers=[BrokerState("b", up=True, disk_used_ratio=None)]), []),
        (AlarmInput(brokers=[BrokerState("b", up=False, why="gone")]), ["broker_away"]),
        (AlarmInput(members=[member(why="gone")]), ["member_away"]),
        (AlarmInput(members=[member(why="gone", leads=True)]), []),
        (AlarmInput(members=[member(missing=True, lag_bytes=1_001)]), ["member_missing"]),
        (
            AlarmInput(members=[member(in_sync=False, must_be_in_sync=True)]),
            ["replica_not_in_sync"],
        ),
        (AlarmInput(members=[member(in_sync=False)]), []),
        (AlarmInput(members=[member(lag_bytes=1_001)]), ["replica_behind"]),
        (AlarmInput(members=[member(lag_bytes=1_000)]), []),
        (AlarmInput(lags={"g": 101, "h": 100}), ["lag"]),
        (AlarmInput(new_dead_letters={"g": 3, "h": 2}), ["dead_letters"]),
        (AlarmInput(sample_age_ms=15_001), ["sampling_gap"]),
        (AlarmInput(sample_age_ms=15_000), []),
        (AlarmInput(trouble="no name server answers"), ["sampling_gap"]),
        (AlarmInput(), []),
    ],
)
def test_what_is_raised(look: AlarmInput, expected: list[str]) -> None:
    assert kinds(look) == expected


def test_a_full_disk_is_worse_than_a_filling_one() -> None:
    (one,) = raised(AlarmInput(brokers=[BrokerState("b", up=True, disk_used_ratio=0.95)]))
    assert one.severity == "critical"
    assert (one.value, one.threshold, one.unit) == (0.95, 0.75, "ratio")


def test_the_worst_stand_first_and_names_are_stable() -> None:
    look = AlarmInput(brokers=[BrokerState("b", up=False, why="gone")], lags={"g": 200, "a": 300})
    found = raised(look)
    assert [one.id for one in found] == ["broker_away:broker:b", "lag:group:a", "lag:group:g"]
    assert "gone" in found[0].meaning


# -- an alarm keeps its beginning while it stands, and gets a new one when it returns --------------


LAG = Raised("lag", "warning", "group", "g", "t", "m", "w")
DISK = Raised("disk", "warning", "broker", "b", "t", "m", "w")


def test_since_when() -> None:
    book = AlarmBook()
    assert [one.since_ms for one in book.note(10, [LAG])] == [10]
    assert [one.since_ms for one in book.note(20, [LAG, DISK])] == [10, 20]
    assert book.note(30, [DISK])[0].since_ms == 20
    assert [one.since_ms for one in book.note(40, [LAG, DISK])] == [40, 20]


def test_one_dead_letter_is_told_in_the_singular() -> None:
    limits = AlarmThresholds(0.75, 100, 0, 1_000)
    (one,) = alarms(AlarmInput(new_dead_letters={"g": 1}), limits)
    assert one.title == "g has 1 new dead letter"
    assert one.meaning.startswith("The group moved 1 message to")
