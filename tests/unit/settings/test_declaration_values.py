"""The form of settings: ranges, RocketMQ's names, texts."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

import pytest

from kourou.client.settings.client_settings import ClientSettings
from kourou.errors import ConfigError
from kourou.settings import declaration as setting_module
from kourou.settings.declaration import SAME, InertKey, Settings, setting


class Mode(StrEnum):
    SLOW = "SLOW"
    FAST = "FAST"


@dataclass(frozen=True, kw_only=True)
class Sample(Settings):
    inert_keys: ClassVar = {
        "oldKey": InertKey("usual", "nobody needs it"),
        "dangerous": InertKey("false", "it would hurt", refused=True),
    }
    count: int = setting(3, "howMany", "How many.", rocketmq=SAME, unit="apples", low=1, high=9)
    least: int = setting(5, "least", "At least.", low=5)
    on: bool = setting(False, "switchedOn", "Whether.", rocketmq=SAME)
    mode: Mode = setting(Mode.SLOW, "mode", "How.", rocketmq=SAME)
    names: tuple[str, ...] = setting((), "names", "Which.", rocketmq=SAME)
    table: dict[str, str] = setting({}, "table", "Which by which.", rocketmq=SAME)
    someday: int = setting(0, "someDay", "Later.", rocketmq=SAME, without_effect=True)


def test_texts_become_values():
    made = Sample.from_rocketmq(howMany="7", switchedOn="true", mode="FAST", names="a;b")
    assert made == Sample(count=7, on=True, mode=Mode.FAST, names=("a", "b"))


@pytest.mark.parametrize("name", ["howmany", "HOWMANY", "count", "howMuny"])
def test_an_unknown_name_tells_the_nearest(name):
    with pytest.raises(ConfigError, match=rf"no setting '{name}'.*did you mean howMany"):
        Sample.from_rocketmq(**{name: 1})


def test_a_name_that_is_near_to_none_tells_none():
    with pytest.raises(ConfigError) as refusal:
        Sample.from_rocketmq(xyzzy=1)
    assert str(refusal.value) == "Sample has no setting 'xyzzy'"


def test_texts_of_enums_and_lists_are_kept_as_such():
    made = Sample(mode="FAST", names=["a", "b"])
    assert made.mode is Mode.FAST
    assert made.names == ("a", "b")
    with pytest.raises(ConfigError, match="texts"):
        Sample(names="ab")


def test_a_mapping_is_the_settings_own():
    given = {"a": "1"}
    made = Sample(table=given)
    given["b"] = "2"
    assert made.table == {"a": "1"}
    assert Sample().table is not Sample().table
    assert hash(made) == hash(Sample())
    with pytest.raises(ConfigError, match="texts by text"):
        Sample(table={"a": 1})


def test_inert_keys_are_passed_over_said_or_refused(caplog, monkeypatch):
    monkeypatch.setattr(setting_module, "_warned", set())
    assert Sample.from_rocketmq(oldKey="Usual", dangerous="false") == Sample()
    assert not caplog.records, "their usual values say nothing new"
    assert Sample.from_rocketmq(oldKey="9") == Sample()
    assert "oldKey has no effect in this version of Kourou: nobody needs it" in caplog.text
    with pytest.raises(ConfigError, match=r"dangerous is True.*it would hurt"):
        Sample.from_rocketmq(dangerous=True)


def test_what_rocketmq_has_no_name_for_goes_by_ours_in_its_style():
    assert Sample.from_rocketmq(least="7").least == 7
    assert ClientSettings.from_rocketmq(logMessages="true").log_messages is True


def test_setting_what_has_no_effect_yet_is_said_once(caplog, monkeypatch):
    monkeypatch.setattr(setting_module, "_warned", set())
    Sample(someday=0)
    assert not caplog.records, "the default asks for nothing"
    chosen = Sample.from_rocketmq(someDay="3")
    dataclasses.replace(chosen, count=4)
    assert caplog.messages == [
        "setting-ineffective: someday has no effect in this version of Kourou"
    ]
