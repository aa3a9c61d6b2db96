"""Loads a service's settings from all sources, and prints them.

    command line  >  environment (KOUROU_ + KEY_IN_CAPITALS)  >  file (-c)  >  default

An unknown key is refused with the nearest known one as a hint: a typing error must not silently
select the default. A RocketMQ key that has no effect in Kourou is accepted with a warning. A key
that promises a safety guarantee which Kourou does not provide is refused
(kourou.model.refused_settings).
"""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar, cast

from kourou.errors import ConfigError
from kourou.model.limits import SETTINGS_FILE_BYTES_MAX
from kourou.model.refused_settings import REFUSED, promises_nothing
from kourou.protocol.wire.properties_text import read_properties, write_properties
from kourou.runtime.settings_registry import SettingSpec
from kourou.service.setting import Setting, Value, environment_name, settings_of

SettingsT = TypeVar("SettingsT")

_PASSWORD_IN_URL = re.compile(r"(?<=://)([^:/?#@\s]*):[^/?#\s]*@")


@dataclass(frozen=True, slots=True)
class Loaded(Generic[SettingsT]):
    """Settings, warnings, and the origin of each setting.

    An origin is "argument", "environment", "file" or "default".
    """

    settings: SettingsT
    origins: Mapping[str, str]
    warnings: tuple[str, ...]


def load_settings(
    cls: type[SettingsT],
    *,
    arguments: Mapping[str, str],
    environment: Mapping[str, str],
    file: Path | None = None,
    inert: Collection[str] = (),
) -> Loaded[SettingsT]:
    """Build `cls` from all sources. `arguments` maps keys to texts.

    Raises ConfigError for an unknown key or an invalid value.
    """
    known = {name: one for one in settings_of(cls) for name in (one.key, *one.aliases)}
    warnings: list[str] = []
    found: dict[str, tuple[Setting, str, str]] = {}
    for key, text in (_read_file(file) if file else {}).items():
        _place(found, known, inert, key, text, "file", warnings, file)
    for one in settings_of(cls):
        for name in (one.environment, one.environment_name):
            if name and name in environment:
                found[one.key] = (one, environment[name], "environment")
    for key in REFUSED.keys() - known.keys():
        said = environment.get(environment_name(key))
        if said is not None:
            _promises_nothing(key, said, "environment", file)
    warnings += _misspelt(environment, cls)
    for key, text in arguments.items():
        _place(found, known, inert, key, text, "argument", warnings)
    for one, text, _ in found.values():
        if one.without_effect and text.strip() != one.format(one.default):
            warnings.append(f"{one.key} has no effect in this version of Kourou")
    values = {
        one.attribute: _parsed(one, text, origin, file) for one, text, origin in found.values()
    }
    origins = {one.key: "default" for one in settings_of(cls)}
    origins |= {one.key: origin for one, _, origin in found.values()}
    return Loaded(cls(**values), origins, tuple(warnings))


def _misspelt(environment: Mapping[str, str], cls: type[Any]) -> list[str]:
    """Return warnings for variables that resemble a setting's but are not one.

    Others are ignored: services and clients may share an environment.
    """
    names = {one.environment_name for one in settings_of(cls)}
    return [
        f"environment variable {name} is not a setting; did you mean {near[0]}?"
        for name in environment
        if name.startswith("KOUROU_")
        and name not in names
        and (near := difflib.get_close_matches(name, names, n=1, cutoff=0.93))
    ]


def _place(
    found: dict[str, tuple[Setting, str, str]],
    known: Mapping[str, Setting],
    inert: Collection[str],
    key: str,
    text: str,
    origin: str,
    warnings: list[str],
    file: Path | None = None,
) -> None:
    one = known.get(key)
    if one is not None:
        found[one.key] = (one, text, origin)
    elif _promises_nothing(key, text, origin, file):
        return
    elif key in inert:
        warnings.append(
            f"{key} is a setting of RocketMQ that does nothing in Kourou; it is ignored"
        )
    else:
        raise unknown_key(key, known)


def unknown_key(key: str, known: Collection[str]) -> ConfigError:
    """Return the error for an unknown key, with the nearest known one as a hint."""
    by_form = {name.lower(): name for name in known}
    near = difflib.get_close_matches(key.lower(), by_form, n=1, cutoff=0.5)
    hint = f"did you mean {by_form[near[0]]}?" if near else "print all with -m"
    return ConfigError(f"setting {key[:128]!r} not found", hint=hint)


def _promises_nothing(key: str, text: str, origin: str, file: Path | None) -> bool:
    try:
        return promises_nothing(key, text)
    except ConfigError as error:
        where = _where(origin, file)
        raise ConfigError(f"{where}: {error.message}", hint=error.hint) from None


def _parsed(one: Setting, text: str, origin: str, file: Path | None) -> Value:
    try:
        return one.parse(text)
    except ConfigError as error:
        where = _where(origin, file)
        raise ConfigError(f"{error.message} {where}", hint=error.hint) from None


def _where(origin: str, file: Path | None) -> str:
    return {
        "argument": "on the command line",
        "environment": "in the environment",
        "file": f"in {file}",
    }[origin]


def _read_file(file: Path) -> dict[str, str]:
    try:
        if file.stat().st_size > SETTINGS_FILE_BYTES_MAX:
            raise ConfigError(f"{file} is larger than a settings file can be")
        return read_properties(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read {file}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{file} is not UTF-8 text at byte {error.start}") from error
    except ConfigError as error:
        raise ConfigError(f"{file}: {error.message}", hint=error.hint) from None


def as_entries(settings: Any) -> dict[str, str]:
    """Return every key and its text, in the order of the class."""
    return {
        one.key: _shown(one, getattr(settings, one.attribute))
        for one in settings_of(type(settings))
    }


def _shown(one: Setting, value: Value) -> str:
    """Return a value for display: without the password of a URL."""
    return _PASSWORD_IN_URL.sub(r"\1:***@", one.format(value))


def render(settings: Any, *, explained: bool = True) -> str:
    """Return properties text with every key; `-m` prints it, and `-c` reads it back.

    Passwords in URLs are shown as ***: they should be in a separate file.
    """
    if not explained:
        return write_properties(as_entries(settings))
    blocks = []
    for one in settings_of(type(settings)):
        notes = [one.about]
        if one.unit:
            notes.append(f"unit: {one.unit}")
        if one.range_text:
            notes.append(f"allowed: {one.range_text}")
        if one.dynamic:
            notes.append("may be changed while running")
        if one.without_effect:
            notes.append("no effect in this version")
        line = write_properties({one.key: _shown(one, getattr(settings, one.attribute))})
        blocks.append(f"# {'; '.join(notes)}\n{line}")
    return "\n".join(blocks)


def setting_specs(settings: Any) -> list[SettingSpec]:
    """Return the keys as the engine's registry of dynamic settings expects them."""
    specs = []
    for one in settings_of(type(settings)):
        value = getattr(settings, one.attribute)
        configured = value if isinstance(value, bool | int) else _shown(one, value)
        specs.append(
            SettingSpec(
                one.key,
                configured,
                dynamic=one.dynamic,
                minimum=-(2**63) if one.low is None else one.low,
                maximum=2**63 - 1 if one.high is None else one.high,
                choices=one.choices,
                pattern=one.pattern,
                about=one.about,
            )
        )
    return specs


def changed(settings: SettingsT, values: Mapping[str, str]) -> SettingsT:
    """Return a copy with some keys changed. Raises ConfigError if a key or text is invalid."""
    known = {one.key: one for one in settings_of(type(settings))}
    attributes: dict[str, Value] = {}
    for key, text in values.items():
        if key not in known:
            raise unknown_key(key, known)
        attributes[known[key].attribute] = known[key].parse(text)
    return cast("SettingsT", dataclasses.replace(cast("Any", settings), **attributes))


def reference_rows(cls: type[Any]) -> list[dict[str, str]]:
    """Return a row per setting: defaults of Kourou, the design documents and RocketMQ 4.9."""
    return [
        {
            "key": one.key,
            "type": one.kind.__name__,
            "unit": one.unit,
            "default": one.default_text or one.format(one.default),
            "seed": one.seed,
            "rocketmq": one.rocketmq,
            "allowed": one.range_text,
            "dynamic": "yes" if one.dynamic else "no",
            "about": one.about + ("; no effect in this version" if one.without_effect else ""),
        }
        for one in settings_of(cls)
    ]
