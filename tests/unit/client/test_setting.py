"""The form of settings: ranges, RocketMQ's names, texts."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from enum import StrEnum

import pytest

from kourou.client import setting as setting_module
from kourou.client.setting import Settings, setting
from kourou.errors import ConfigError


class Mode(StrEnum):
    SLOW = "SLOW"
    FAST = "FAST"


@dataclass(frozen=True, kw_only=True)
class Sample(Settings):
    count: int = setting(3, "How many.", rocketmq="howMany", minimum=1, maximum=9)
    least: int = setting(5, "At least.", minimum=5)
    on: bool = setting(False, "Whether.", rocketmq="switchedOn")
    mode: Mode = setting(Mode.SLOW, "How.", rocketmq="mode")  # noqa: RUF009 - a field, as dataclasses.field() makes
    names: tuple[str, ...] = setting((), "Which.", rocketmq="names")
    someday: int = setting(0, "Later.", rocketmq="someDay", without_effect=True)


@pytest.mark.parametrize(("name", "value"), [("count", 0), ("count", 10), ("least", 4)])
def test_ranges(name, value):
    with pytest.raises(ConfigError, match=name):
        Sample(**{name: value})


def test_texts_become_values():
    made = Sample.from_rocketmq(howMany="7", switchedOn="true", mode="FAST", names="a;b")
    assert made == Sample(count=7, on=True, mode=Mode.FAST, names=("a", "b"))


@pytest.mark.parametrize(
    "settings", [{"howMany": "x"}, {"switchedOn": "1"}, {"mode": "fast"}, {"howMany": "10"}]
)
def test_texts_that_mean_nothing(settings):
    with pytest.raises(ConfigError):
        Sample.from_rocketmq(**settings)


def test_only_rocketmq_names_are_taken():
    with pytest.raises(ConfigError):
        Sample.from_rocketmq(least=7)


def test_a_description_has_everything():
    row = Sample.describe()[0]
    assert row == {
        "name": "count",
        "default": 3,
        "doc": "How many.",
        "rocketmq": "howMany",
        "minimum": 1,
        "maximum": 9,
        "without_effect": False,
    }
    assert Sample.describe()[-1]["without_effect"] is True


def test_setting_what_has_no_effect_yet_is_said_once(caplog, monkeypatch):
    monkeypatch.setattr(setting_module, "_warned", set())
    Sample(someday=0)
    assert not caplog.records, "the default asks for nothing"
    chosen = Sample.from_rocketmq(someDay="3")
    dataclasses.replace(chosen, count=4)
    assert [one.getMessage() for one in caplog.records] == [
        "someday has no effect in this version of Kourou"
    ]
