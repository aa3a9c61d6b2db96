"""Settings changed while the broker runs."""

from __future__ import annotations

import pytest

from kourou.errors import BadRequest, ConfigError, NoPermission
from kourou.events.control_events import Event, SettingChanged
from kourou.model.topic import DataVersion
from kourou.settings import registry as settings
from kourou.settings.declaration import Setting
from kourou.settings.registry import ChangedSettings, SettingsRegistry

HOURS = Setting("fileReservedTime", 72, dynamic=True, low=1, high=1000)
TRACE = Setting("traceOn", True, dynamic=True)
REGISTRY = SettingsRegistry([HOURS, TRACE, Setting("maxMessageSize", 4)])


def apply(state: ChangedSettings, events: list[Event], at_ms: int = 1) -> ChangedSettings:
    for event in events:
        assert isinstance(event, SettingChanged)
        settings.evolve(state, event, at_ms)
    return state


@pytest.mark.feature("F358")
def test_a_change_takes_effect_and_its_event_knows_what_was_before():
    state = ChangedSettings()
    made = settings.decide_change(state, REGISTRY, {"fileReservedTime": "24", "traceOn": "false"})
    assert made == [SettingChanged("fileReservedTime", 24), SettingChanged("traceOn", False)]
    apply(state, made, at_ms=9)
    assert settings.effective(state, HOURS) == 24
    assert settings.effective(state, TRACE) is False
    assert state.version == DataVersion(9, 2)
    assert settings.decide_change(state, REGISTRY, {"fileReservedTime": "48"}) == [
        SettingChanged("fileReservedTime", 48, 24)
    ]


def test_what_is_so_already_changes_nothing():
    assert settings.decide_change(ChangedSettings(), REGISTRY, {"fileReservedTime": "72"}) == []


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"fileReservedTime": "24", "maxMessageSize": "9"}, ConfigError),
        ({"fileReservedTime": "24", "traceOn": "maybe"}, ConfigError),
        ({"fileReservedTime": "24", "storePathRootDir": "/x"}, NoPermission),
        ({}, BadRequest),
    ],
)
def test_one_refused_key_refuses_the_whole_request(changes: dict[str, str], error: type[Exception]):
    with pytest.raises(error):
        settings.decide_change(ChangedSettings(), REGISTRY, changes)


def test_clearing_follows_the_file_again():
    state = apply(ChangedSettings(), [SettingChanged("fileReservedTime", 24)])
    made = settings.decide_clear(state, REGISTRY, "fileReservedTime")
    assert made == [SettingChanged("fileReservedTime", None, 24)]
    apply(state, made)
    assert settings.effective(state, HOURS) == 72
    assert settings.decide_clear(state, REGISTRY, "fileReservedTime") == []


@pytest.mark.parametrize("stored", [0, 1001, True, "24"])
def test_a_stored_value_that_the_registry_no_longer_allows_has_no_effect(stored: int | str):
    state = ChangedSettings({"fileReservedTime": stored})
    assert settings.effective(state, HOURS) == 72


def test_a_promise_that_is_not_kept_is_refused_and_its_usual_value_changes_nothing():
    with pytest.raises(ConfigError, match="aclEnable=true is refused: Kourou does not need it"):
        settings.decide_change(
            ChangedSettings(), REGISTRY, {"traceOn": "false", "aclEnable": "true"}
        )
    assert settings.decide_change(ChangedSettings(), REGISTRY, {"aclEnable": "false"}) == []
