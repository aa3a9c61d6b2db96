"""The settings that may be changed while the broker runs, and their allowed values.

State: none; a registry is created once at startup and does not change.

It is an allow-list, not a block-list: any other key is refused. In addition, keys that determine
file locations, connections, executed code or permissions cannot be added to it by mistake, because
building the registry asserts that. The reason is RocketMQ's CVE-2023-33246.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from kourou.errors import ConfigError, NoPermission
from kourou.events.control_events import Scalar
from kourou.model.limits import SETTING_LENGTH_MAX, SETTING_NAME_LENGTH_MAX
from kourou.protocol.bodies.broker_bodies import SettingView

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
RESTART = "change the configuration file and restart"

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_INTEGER = re.compile(r"-?[0-9]{1,19}")


@dataclass(frozen=True, slots=True)
class SettingSpec:
    """One key: its type is that of `configured`, the value from the file or the default.

    `minimum` and `maximum` limit integers (both included); `choices`, if given, are all allowed
    texts; `pattern`: what the whole text must match. `dynamic` False: read at startup only.
    """

    name: str
    configured: Scalar
    dynamic: bool = False
    minimum: int = -(2**63)
    maximum: int = 2**63 - 1
    choices: tuple[str, ...] = ()
    pattern: str = ""
    about: str = ""


def never_remote(name: str) -> str | None:
    """What a key determines if it must never be changed remotely; None for an ordinary key."""
    reason = _NEVER_REMOTE_NAMES.get(name)
    if reason is not None:
        return reason
    for word in _WORD.findall(name):
        reason = _NEVER_REMOTE_WORDS.get(word.lower())
        if reason is not None:
            return reason
    return None


class SettingsRegistry:
    """The keys of this service, by name."""

    __slots__ = ("_by_name",)

    def __init__(self, specs: Iterable[SettingSpec]) -> None:
        self._by_name: dict[str, SettingSpec] = {}
        for spec in specs:
            assert spec.name not in self._by_name, f"{spec.name} is listed twice"
            assert not spec.dynamic or never_remote(spec.name) is None, (
                f"{spec.name} determines {never_remote(spec.name)} and cannot be dynamic"
            )
            self._by_name[spec.name] = spec

    def __iter__(self) -> Iterator[SettingSpec]:
        return iter(self._by_name.values())

    def get(self, name: str) -> SettingSpec | None:
        """The key's specification, or None."""
        return self._by_name.get(name)

    def dynamic(self, name: str) -> SettingSpec:
        """The specification of a key that may be changed now.

        Raises NoPermission (16) for a key that can never be changed remotely, ConfigError for
        others; the text says why, and for an unknown name the most similar dynamic key.
        """
        shown = name if len(name) <= SETTING_NAME_LENGTH_MAX else name[:SETTING_NAME_LENGTH_MAX]
        reason = never_remote(shown)
        if reason is not None:
            raise NoPermission(
                f"{shown!r} determines {reason}, so it cannot be changed remotely", hint=RESTART
            )
        spec = self._by_name.get(name)
        if spec is None:
            raise ConfigError(
                f"setting {shown!r} not found", hint="check the spelling" + self._nearest(shown)
            )
        if not spec.dynamic:
            raise ConfigError(
                f"{name} is a setting, but it cannot be changed while the service runs",
                hint=RESTART,
            )
        return spec

    def told(self, spec: SettingSpec, value: str) -> SettingView:
        """One of its keys with the effective value, for a user who wants to change it."""
        why_not = ""
        try:
            self.dynamic(spec.name)
        except (ConfigError, NoPermission) as refusal:
            why_not = f"{refusal.message}; {refusal.hint}" if refusal.hint else refusal.message
        configured = spec.configured
        truth, number = isinstance(configured, bool), isinstance(configured, int)
        bounded = number and not truth
        return SettingView(
            name=spec.name,
            value=value,
            configured=str(configured).lower() if truth else str(configured),
            kind="boolean" if truth else "integer" if number else "text",
            about=spec.about,
            changeable=not why_not,
            why_not=why_not,
            minimum=spec.minimum if bounded and spec.minimum > -(2**63) else None,
            maximum=spec.maximum if bounded and spec.maximum < 2**63 - 1 else None,
            choices=spec.choices,
        )

    def _nearest(self, name: str) -> str:
        by_form = {spec.name.lower(): spec.name for spec in self if spec.dynamic}
        found = difflib.get_close_matches(name.lower(), by_form, n=1, cutoff=0.0)
        return f"; the most similar dynamic setting is {by_form[found[0]]}" if found else ""


def parse_value(spec: SettingSpec, text: str) -> Scalar:
    """`text` as a value of this key. Raises ConfigError that says what is allowed."""
    if len(text) > SETTING_LENGTH_MAX:
        raise ConfigError(
            f"the value of {spec.name} has {len(text)} characters; at most "
            f"{SETTING_LENGTH_MAX} are allowed"
        )
    if not text.isprintable():
        raise ConfigError(f"the value of {spec.name} contains a line break or control character")
    if isinstance(spec.configured, bool):
        return _parse_bool(spec, text)
    if isinstance(spec.configured, int):
        return _parse_int(spec, text)
    if spec.choices and text not in spec.choices:
        raise ConfigError(f"{spec.name} is {text!r}", hint=f"use one of {', '.join(spec.choices)}")
    if spec.pattern and not re.fullmatch(spec.pattern, text):
        raise ConfigError(
            f"{spec.name} is {text!r}", hint=f"write it in the form of {spec.configured}"
        )
    return text


def _parse_bool(spec: SettingSpec, text: str) -> bool:
    form = text.strip().lower()
    if form not in ("true", "false"):
        raise ConfigError(f"{spec.name} is {text!r}", hint="use true or false")
    return form == "true"


def _parse_int(spec: SettingSpec, text: str) -> int:
    form = text.strip()
    if not _INTEGER.fullmatch(form):
        raise ConfigError(f"{spec.name} is {text!r}", hint="use a whole number")
    value = int(form)
    if not spec.minimum <= value <= spec.maximum:
        raise ConfigError(
            f"{spec.name} is {value}", hint=f"use a number from {spec.minimum} to {spec.maximum}"
        )
    if spec.choices and form not in spec.choices:
        raise ConfigError(f"{spec.name} is {value}", hint=f"use one of {', '.join(spec.choices)}")
    return value
