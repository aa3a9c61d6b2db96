"""Defines one setting: its name, type, range, default and description.

A settings class is a frozen dataclass whose fields are made by `setting(...)`. Keys keep RocketMQ's
spelling, because users reuse their files; attribute names include units.
"""

from __future__ import annotations

import dataclasses
import enum
import re
import types
import typing
from collections.abc import Hashable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from kourou.errors import ConfigError

Value = bool | int | str | Path | enum.StrEnum | None


class _Same(enum.Enum):
    """Marks "the same as Kourou's default" in the columns of other products."""

    SAME = enum.auto()


SAME = _Same.SAME


@dataclass(frozen=True, slots=True)
class Setting:
    """The definition of one key.

    `seed` is the default that the design documents state ("" if they do not), `rocketmq` that of
    RocketMQ 4.9 ("" if it has no such key). `environment` is a variable that is read in addition to
    KOUROU_<KEY>. `low` and `high` are inclusive. `dynamic` settings may be changed while the
    service runs. `default_text` replaces the default in generated pages if the default depends on
    the machine. `pattern`: a regular expression that the whole text must match. `without_effect`
    marks a key whose feature does not exist yet: it is accepted with a warning that it has no
    effect.
    """

    key: str
    attribute: str
    kind: type[Any]
    optional: bool
    default: Value
    about: str
    unit: str = ""
    low: int | None = None
    high: int | None = None
    choices: tuple[str, ...] = ()
    dynamic: bool = False
    seed: str = ""
    rocketmq: str = ""
    environment: str = ""
    aliases: tuple[str, ...] = ()
    default_text: str = ""
    without_effect: bool = False
    pattern: str = ""

    @property
    def environment_name(self) -> str:
        """KOUROU_ and the key in capitals: brokerName is KOUROU_BROKER_NAME."""
        return environment_name(self.key)

    @property
    def range_text(self) -> str:
        """The allowed values, for display."""
        if self.choices:
            return ", ".join(self.choices)
        if self.kind is bool:
            return "true, false"
        if self.low is not None and self.high is not None:
            return f"{self.low} to {self.high}"
        if self.low is not None:
            return f"at least {self.low}"
        return ""

    def parse(self, text: str) -> Value:
        """Parse a text. Raises ConfigError with the reason and the allowed values."""
        text = text.strip()
        if not text:
            if self.optional:
                return None
            if self.kind is not str:
                raise self._refused(text)
        if any(ord(char) < 0x20 or ord(char) == 0x7F for char in text):
            raise ConfigError(f"{self.key} contains a control character")
        if self.kind is bool:
            return self._parse_bool(text)
        if self.kind is int:
            return self._parse_int(text)
        if self.choices and text not in self.choices:
            raise self._refused(text)
        if self.pattern and not re.fullmatch(self.pattern, text):
            raise self._refused(text)
        if self.kind is Path:
            return _parse_path(text)
        return typing.cast("Value", self.kind(text))

    def format(self, value: Value) -> str:
        """Return the text that `parse` reads back; None becomes the empty text."""
        if value is None:
            return ""
        if isinstance(value, bool):
            return "true" if value else "false"
        return str(value.value) if isinstance(value, enum.Enum) else str(value)

    def _parse_bool(self, text: str) -> bool:
        lowered = text.lower()
        if lowered not in ("true", "false"):
            raise self._refused(text)
        return lowered == "true"

    def _parse_int(self, text: str) -> int:
        digits = text.removeprefix("-")
        if not (digits.isascii() and digits.isdigit()) or len(digits) > 19:
            raise self._refused(text)
        value = int(text)
        too_low = self.low is not None and value < self.low
        if too_low or (self.high is not None and value > self.high):
            raise self._refused(text)
        return value

    def _refused(self, text: str) -> ConfigError:
        if self.choices or self.kind is bool:
            wanted = "one of " + self.range_text
        elif self.kind is int:
            wanted = "a whole number" + (f", {self.range_text}" if self.range_text else "")
            wanted += f", in {self.unit}" if self.unit else ""
        elif self.pattern:
            wanted = self.about
        else:
            wanted = "a value"
        return ConfigError(f"{self.key}={text!r} is refused", hint=f"expected: {wanted}")


def _parse_path(text: str) -> Path:
    home = str(Path.home())
    for prefix in ("${user.home}", "${HOME}", "$HOME"):
        if text == prefix or text.startswith(prefix + "/"):
            text = home + text[len(prefix) :]
    return Path(text).expanduser()


def setting(
    default: Any,
    key: str,
    about: str,
    *,
    unit: str = "",
    low: int | None = None,
    high: int | None = None,
    choices: tuple[str, ...] = (),
    dynamic: bool = False,
    seed: str | _Same = "",
    rocketmq: str | _Same = "",
    environment: str = "",
    aliases: tuple[str, ...] = (),
    default_text: str = "",
    without_effect: bool = False,
    pattern: str = "",
) -> Any:
    """Create a field of a settings class. A callable `default` is called when needed."""
    about_it = {
        "key": key,
        "about": about,
        "unit": unit,
        "low": low,
        "high": high,
        "choices": choices,
        "dynamic": dynamic,
        "seed": seed,
        "rocketmq": rocketmq,
        "environment": environment,
        "aliases": aliases,
        "default_text": default_text,
        "without_effect": without_effect,
        "pattern": pattern,
    }
    if callable(default) and not isinstance(default, enum.Enum):
        return dataclasses.field(default_factory=default, metadata=about_it)
    return dataclasses.field(default=default, metadata=about_it)


def settings_of(cls: type[Any]) -> tuple[Setting, ...]:
    """Return the settings that a settings class declares, in its order."""
    return _settings_of(typing.cast("Hashable", cls))  # mypy does not treat a class as hashable


@cache
def _settings_of(cls: Any) -> tuple[Setting, ...]:
    hints = typing.get_type_hints(cls)
    found = []
    for field in dataclasses.fields(cls):
        kind, optional = _unwrap(hints[field.name])
        about_it: dict[str, Any] = dict(field.metadata)
        default = (
            field.default
            if field.default is not dataclasses.MISSING
            else typing.cast("Any", field.default_factory)()
        )
        if issubclass(kind, enum.StrEnum):
            about_it["choices"] = tuple(member.value for member in kind)
        same = [name for name in ("seed", "rocketmq") if about_it[name] is SAME]
        about_it |= dict.fromkeys(same, "")
        one = Setting(
            attribute=field.name, kind=kind, optional=optional, default=default, **about_it
        )
        shown: dict[str, Any] = dict.fromkeys(same, one.default_text or one.format(default))
        found.append(dataclasses.replace(one, **shown))
    return tuple(found)


def _unwrap(hint: Any) -> tuple[type[Any], bool]:
    """Return the type, and whether it is optional (`X | None`)."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        inner = [part for part in typing.get_args(hint) if part is not type(None)]
        assert len(inner) == 1, f"a setting has one type, not {hint}"
        return inner[0], True
    return hint, False


def environment_name(key: str) -> str:
    """Return KOUROU_ and the key in capitals, words separated by `_`; a dot becomes `_`, too."""
    out = ["KOUROU_"]
    for at, char in enumerate(key):
        before = key[at - 1] if at else ""
        after = key[at + 1] if at + 1 < len(key) else ""
        starts_word = char.isupper() and (
            before.islower() or before.isdigit() or (before.isupper() and after.islower())
        )
        out.append(("_" if starts_word and at else "") + ("_" if char == "." else char.upper()))
    return "".join(out)
