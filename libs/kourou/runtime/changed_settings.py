"""The settings that were changed while the broker ran.

State: projection of SettingChanged; owned and changed in place by `evolve`. History and undo use
the events: each contains the previous value.

Invariants:  a request that names several keys changes all of them or none
             a changed value that the registry no longer allows has no effect
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kourou.errors import BadRequest, ConfigError
from kourou.events.control_events import Event, Scalar, SettingChanged
from kourou.model.refused_settings import promises_nothing
from kourou.model.topic import DataVersion
from kourou.runtime.settings_registry import SettingSpec, SettingsRegistry, parse_value


@dataclass(slots=True)
class Settings:
    """Values that differ from the configuration file's, by key."""

    values: dict[str, Scalar] = field(default_factory=dict)
    version: DataVersion = field(default_factory=DataVersion)

    def copy(self) -> Settings:
        """An independent copy."""
        return Settings(dict(self.values), self.version)


def evolve(settings: Settings, event: SettingChanged, at_ms: int) -> None:
    """Apply one event, in place."""
    if event.value is None:
        settings.values.pop(event.name, None)
    else:
        settings.values[event.name] = event.value
    settings.version = DataVersion(at_ms, settings.version.counter + 1)


def effective(settings: Settings, spec: SettingSpec) -> Scalar:
    """The effective value: the changed one if the registry still allows it, else the file's."""
    changed = settings.values.get(spec.name)
    if changed is None or not spec.dynamic or type(changed) is not type(spec.configured):
        return spec.configured
    try:
        return parse_value(spec, _text(changed))
    except ConfigError:
        return spec.configured


def decide_change(
    settings: Settings, registry: SettingsRegistry, changes: Mapping[str, str]
) -> list[Event]:
    """Change several keys at once; if one is refused, none is changed.

    A RocketMQ key that Kourou does not have is skipped if its value turns the feature off. Raises
    ConfigError or NoPermission.
    """
    if not changes:
        raise BadRequest("no setting is given", hint="give lines of the form key=value")
    events: list[Event] = []
    for name, text in changes.items():
        if promises_nothing(name, text):
            continue
        spec = registry.dynamic(name)
        value = parse_value(spec, text)
        if value != effective(settings, spec):
            events.append(SettingChanged(name, value, settings.values.get(name)))
    return events


def decide_clear(settings: Settings, registry: SettingsRegistry, name: str) -> list[Event]:
    """Use the value of the configuration file again. Raises ConfigError or NoPermission."""
    registry.dynamic(name)
    before = settings.values.get(name)
    return [] if before is None else [SettingChanged(name, None, before)]


def _text(value: Scalar) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
