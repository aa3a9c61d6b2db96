"""The settings that may be changed while a service runs, and the changed values.

A registry is an allow-list, not a block-list: any other key is refused. In addition, keys that
determine file locations, connections, executed code or permissions cannot be added to it by
mistake, because building the registry asserts that. The reason is RocketMQ's CVE-2023-33246.

State: projection of SettingChanged (`ChangedSettings`); owned and changed in place by `evolve`.
History and undo use the events: each contains the previous value.

Invariants:  a request that names several keys changes all of them or none
             a changed value that the registry no longer allows has no effect
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Self, cast

from kourou.errors import BadRequest, ConfigError, NoPermission
from kourou.events.control_events import Event, Scalar, SettingChanged
from kourou.model.limits import SETTING_LENGTH_MAX, SETTING_NAME_LENGTH_MAX
from kourou.model.refused_settings import promises_nothing
from kourou.model.topic import DataVersion
from kourou.protocol.bodies.broker_bodies import SettingView
from kourou.settings.declaration import Setting, nearest, settings_of
from kourou.settings.sources import shown

_NEVER_REMOTE_WORDS: dict[str, str] = {
    **dict.fromkeys(
        ("path", "paths", "dir", "directory", "home", "root", "folder"), "file locations"
    ),
    **dict.fromkeys(
        ("addr", "addrs", "address", "addresses", "host", "ip", "url", "endpoint", "namesrv"),
        "which servers it connects to",
    ),
    **dict.fromkeys(
        ("port", "ports", "listen", "listener", "listeners", "bind"), "where it listens"
    ),
    **dict.fromkeys(
        (
            "command",
            "interpreter",
            "script",
            "exec",
            "env",
            "environment",
            "class",
            "plugin",
            "jar",
        ),
        "which code it runs",
    ),
    **dict.fromkeys(
        ("acl", "auth", "tls", "ssl", "curve", "secret", "password", "credential", "token", "key"),
        "access rights",
    ),
    **dict.fromkeys(("sandbox", "jail"), "how filters are isolated"),
}
_NEVER_REMOTE_NAMES: dict[str, str] = {
    "flushDiskType": "when messages are acknowledged",
    "brokerRole": "which broker accepts writes",
    "brokerId": "which broker accepts writes",
    "cleanFileForciblyEnable": "whether unconsumed messages may be deleted",
    "allowLoseUnconsumed": "whether unconsumed messages may be deleted",
    "configBlackList": "which settings may be changed",
}
_INT64_MAX = 2**63 - 1
RESTART = "change the configuration file and restart"

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


def never_remote(key: str) -> str | None:
    """What a key determines if it must never be changed remotely; None for an ordinary key."""
    reason = _NEVER_REMOTE_NAMES.get(key)
    if reason is not None:
        return reason
    for word in _WORD.findall(key):
        reason = _NEVER_REMOTE_WORDS.get(word.lower())
        if reason is not None:
            return reason
    return None


class SettingsRegistry:
    """The settings of this service by key; the default of each is the configured value.

    Configured values are numbers, flags and texts: paths and others are texts for display.
    """

    __slots__ = ("_by_key",)

    def __init__(self, settings: Iterable[Setting]) -> None:
        self._by_key: dict[str, Setting] = {}
        for one in settings:
            assert one.key not in self._by_key, f"{one.key} is listed twice"
            assert not one.dynamic or never_remote(one.key) is None, (
                f"{one.key} determines {never_remote(one.key)} and cannot be dynamic"
            )
            self._by_key[one.key] = one

    @classmethod
    def of(cls, settings: Any) -> Self:
        """Return the registry of a settings object, whose values are the configured ones."""
        return cls(_configured(one, settings) for one in settings_of(type(settings)))

    def __iter__(self) -> Iterator[Setting]:
        return iter(self._by_key.values())

    def dynamic(self, key: str) -> Setting:
        """Return a setting that may be changed now.

        Raises NoPermission (16) for a key that can never be changed remotely, ConfigError for
        others; the text says why, and for an unknown key the most similar dynamic one.
        """
        name = key[:SETTING_NAME_LENGTH_MAX]
        reason = never_remote(name)
        if reason is not None:
            raise NoPermission(
                f"{name!r} determines {reason}, so it cannot be changed remotely", hint=RESTART
            )
        one = self._by_key.get(key)
        if one is None:
            near = nearest(name, (one.key for one in self if one.dynamic), cutoff=0.0)
            hint = f"; the most similar dynamic setting is {near}" if near else ""
            raise ConfigError(f"setting {name!r} not found", hint="check the spelling" + hint)
        if not one.dynamic:
            raise ConfigError(
                f"{key} is a setting, but it cannot be changed while the service runs",
                hint=RESTART,
            )
        return one

    def view(self, one: Setting, value: str) -> SettingView:
        """Return a setting with its effective value, for a user who wants to change it."""
        why_not = ""
        try:
            self.dynamic(one.key)
        except (ConfigError, NoPermission) as refusal:
            why_not = f"{refusal.message}; {refusal.hint}" if refusal.hint else refusal.message
        return SettingView(
            name=one.key,
            value=value,
            configured=one.format(one.default),
            kind={bool: "boolean", int: "integer"}.get(one.kind, "text"),
            about=one.about,
            changeable=not why_not,
            why_not=why_not,
            minimum=one.low if one.kind is int else None,
            maximum=one.high if one.kind is int and one.high != _INT64_MAX else None,
            choices=one.choices,
        )


def _configured(one: Setting, settings: Any) -> Setting:
    value = getattr(settings, one.name)
    if not isinstance(value, bool | int):
        value = shown(one, settings)
    return dataclasses.replace(one, default=value, kind=type(value), optional=False)


def parse_change(one: Setting, text: str) -> Scalar:
    """Return the new value of a setting. Raises ConfigError that describes the allowed ones."""
    if len(text) > SETTING_LENGTH_MAX:
        raise ConfigError(
            f"the value of {one.key} has {len(text)} characters; at most {SETTING_LENGTH_MAX} "
            "are allowed"
        )
    if not text.isprintable():
        raise ConfigError(f"the value of {one.key} contains a line break or control character")
    value = text if one.kind is str else one.read(text)
    if not one.accepts(value):
        raise ConfigError(f"{one.key} is {text!r}", hint=f"use {one.expected}")
    return cast("Scalar", value)


def text_of(value: Scalar) -> str:
    """Return the text of a value, which `parse_change` reads."""
    return str(value).lower() if isinstance(value, bool) else str(value)


# -- changed values -------------------------------------------------------------------------------


@dataclass(slots=True)
class ChangedSettings:
    """Values that differ from the configuration file's, by key."""

    values: dict[str, Scalar] = field(default_factory=dict)
    version: DataVersion = field(default_factory=DataVersion)

    def copy(self) -> ChangedSettings:
        """An independent copy."""
        return ChangedSettings(dict(self.values), self.version)


def evolve(settings: ChangedSettings, event: SettingChanged, at_ms: int) -> None:
    """Apply one event, in place."""
    if event.value is None:
        settings.values.pop(event.name, None)
    else:
        settings.values[event.name] = event.value
    settings.version = DataVersion(at_ms, settings.version.counter + 1)


def effective(settings: ChangedSettings, one: Setting) -> Scalar:
    """The effective value: the changed one if the registry still allows it, else the file's."""
    changed = settings.values.get(one.key)
    if not one.dynamic or type(changed) is not one.kind or not one.accepts(changed):
        return cast("Scalar", one.default)
    return cast("Scalar", changed)


def decide_change(
    settings: ChangedSettings, registry: SettingsRegistry, changes: Mapping[str, str]
) -> list[Event]:
    """Change several keys at once; if one is refused, none is changed.

    A RocketMQ key that Kourou does not have is skipped if its value turns the feature off. Raises
    ConfigError or NoPermission.
    """
    if not changes:
        raise BadRequest("no setting is given", hint="give lines of the form key=value")
    events: list[Event] = []
    for key, text in changes.items():
        if promises_nothing(key, text):
            continue
        one = registry.dynamic(key)
        value = parse_change(one, text)
        if value != effective(settings, one):
            events.append(SettingChanged(key, value, settings.values.get(key)))
    return events


def decide_clear(settings: ChangedSettings, registry: SettingsRegistry, key: str) -> list[Event]:
    """Use the value of the configuration file again. Raises ConfigError or NoPermission."""
    registry.dynamic(key)
    before = settings.values.get(key)
    return [] if before is None else [SettingChanged(key, None, before)]
