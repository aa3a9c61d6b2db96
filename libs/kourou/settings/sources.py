"""Where the values of settings come from, and how a service prints them.

    command line  >  environment (KOUROU_ + KEY_IN_CAPITALS)  >  file (-c)  >  default

An unknown key is refused with the nearest known one as a hint: a typing error must not silently
select the default. A RocketMQ key that has no effect in Kourou is accepted with a warning. A key
that promises a safety guarantee which Kourou does not provide is refused
(kourou.model.refused_settings).
"""

from __future__ import annotations

import difflib
import re
import stat
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from kourou.errors import ConfigError
from kourou.model.limits import SETTINGS_FILE_BYTES_MAX
from kourou.model.refused_settings import REFUSED, promises_nothing
from kourou.protocol.wire.properties_text import read_properties, write_properties
from kourou.settings.declaration import Setting, environment_name, nearest, settings_of

SettingsT = TypeVar("SettingsT")

_PASSWORD_IN_URL = re.compile(r"(?<=://)([^:/?#@;\s]*):[^;\s]*@")
_PASSWORD_IN_QUERY = re.compile(r"([?&](?:ssl)?password=)[^&#\s]+")


@dataclass(frozen=True, slots=True)
class LoadedSettings(Generic[SettingsT]):
    """Settings, and the warnings for their user."""

    settings: SettingsT
    warnings: tuple[str, ...]


def load_settings(
    cls: type[SettingsT],
    *,
    arguments: Mapping[str, str],
    environment: Mapping[str, str],
    file: Path | None = None,
) -> LoadedSettings[SettingsT]:
    """Build the settings of a service from all sources. `arguments` maps keys to texts.

    A key of `cls.inert_keys`, if there are any, causes a warning and has no effect.

    Raises ConfigError for an unknown key or an invalid value.
    """
    known = {key: one for one in settings_of(cls) for key in (one.key, *one.aliases)}
    inert: Collection[str] = getattr(cls, "inert_keys", ())
    warnings: list[str] = []
    found: dict[str, tuple[Setting, str, str]] = {}

    def place(key: str, text: str, origin: str) -> None:
        one = known.get(key)
        if one is not None:
            found[one.key] = (one, text, origin)
        elif not _promises_nothing(key, text, origin, file):
            if key not in inert:
                raise unknown_key(key, known)
            warnings.append(
                f"{key} is a setting of RocketMQ that does nothing in Kourou; it is ignored"
            )

    for key, text in (read_settings_file(file) if file else {}).items():
        place(key, text, "file")
    for one in settings_of(cls):
        for variable in (one.environment, one.environment_name):
            if variable and variable in environment:
                found[one.key] = (one, environment[variable], "environment")
    for key in REFUSED.keys() - known.keys():
        said = environment.get(environment_name(key))
        if said is not None:
            _promises_nothing(key, said, "environment", file)
    warnings += _misspelt(environment, cls)
    for key, text in arguments.items():
        place(key, text, "argument")
    for one, text, _ in found.values():
        if one.without_effect and text.strip() != one.format(one.default):
            warnings.append(f"{one.key} has no effect in this version of Kourou")
    values = {one.name: _parsed(one, text, origin, file) for one, text, origin in found.values()}
    settings = cls(**values)
    return LoadedSettings(settings, (*warnings, *_open_secrets(settings)))


def _open_secrets(settings: Any) -> list[str]:
    return [
        f"{one.key}={path} is open to all users of this machine; to change that: chmod o= {path}"
        for one in settings_of(type(settings))
        if one.secret_file
        and (path := getattr(settings, one.name)) is not None
        and is_open_to_all(path)
    ]


def is_open_to_all(path: Path) -> bool:
    """Return whether any user of this machine can read or write a file.

    A folder that others cannot enter protects it, whatever its own mode is.
    """
    try:
        whole = path.resolve()
        open_file = whole.stat().st_mode & (stat.S_IROTH | stat.S_IWOTH)
        return bool(open_file) and all(one.stat().st_mode & stat.S_IXOTH for one in whole.parents)
    except OSError:
        return False  # who needs the file reports that it cannot be read


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


def unknown_key(key: str, known: Collection[str]) -> ConfigError:
    """Return the error for an unknown key, with the nearest known one as a hint."""
    near = nearest(key, known, cutoff=0.5)
    hint = f"did you mean {near}?" if near else "print all with -m"
    return ConfigError(f"setting {key[:128]!r} not found", hint=hint)


def _promises_nothing(key: str, text: str, origin: str, file: Path | None) -> bool:
    try:
        return promises_nothing(key, text)
    except ConfigError as error:
        where = _where(origin, file)
        raise ConfigError(f"{where}: {error.message}", hint=error.hint) from None


def _parsed(one: Setting, text: str, origin: str, file: Path | None) -> Any:
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


def read_settings_file(file: Path) -> dict[str, str]:
    """Return the texts of a properties file by key. Raises ConfigError if it cannot be read."""
    try:
        with file.open("rb") as opened:
            data = opened.read(SETTINGS_FILE_BYTES_MAX + 1)
        if len(data) > SETTINGS_FILE_BYTES_MAX:
            raise ConfigError(
                f"{file} is larger than {SETTINGS_FILE_BYTES_MAX} bytes; it is not a settings file"
            )
        text = data.decode()
    except OSError as error:
        raise ConfigError(f"cannot read {file}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{file} is not UTF-8 text at byte {error.start}") from error
    try:
        return read_properties(text)
    except ConfigError as error:
        raise ConfigError(f"{file}: {error.message}", hint=error.hint) from None


# -- output ---------------------------------------------------------------------------------------


def as_entries(settings: Any) -> dict[str, str]:
    """Return every key and its text, in the order of the class."""
    return {one.key: shown(one, settings) for one in settings_of(type(settings))}


def shown(one: Setting, settings: Any) -> str:
    """Return the value of a setting for display: without the password of a URL."""
    text = _PASSWORD_IN_URL.sub(r"\1:***@", one.format(getattr(settings, one.name)))
    return _PASSWORD_IN_QUERY.sub(r"\1***", text)


def render(settings: Any, *, explained: bool = True) -> str:
    """Return properties text with every key; `-m` prints it, and `-c` reads it back.

    Passwords in URLs are shown as ***: they should be in a separate file.
    """
    if not explained:
        return write_properties(as_entries(settings))
    blocks = []
    for one in settings_of(type(settings)):
        notes = [
            one.about,
            one.unit and f"unit: {one.unit}",
            one.range_text and f"allowed: {one.range_text}",
            "may be changed while running" if one.dynamic else "",
            "no effect in this version" if one.without_effect else "",
        ]
        line = write_properties({one.key: shown(one, settings)})
        blocks.append(f"# {'; '.join(filter(None, notes))}\n{line}")
    return "\n".join(blocks)
