"""The declaration of a setting, and the values that it accepts.

A settings class is a frozen dataclass whose fields are made by `setting(...)`. Keys keep RocketMQ's
spelling, because users reuse their files; attribute names include units. Services read their
settings from texts (kourou.settings.sources). Code passes values to the settings of clients, which
inherit from `Settings`: it checks them, so every existing object is valid.

State: soft: the settings for which this process logged that they have no effect.
"""

from __future__ import annotations

import dataclasses
import difflib
import enum
import logging
import math
import re
import types
import typing
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Self

from kourou.errors import ConfigError
from kourou.model.limits import SETTING_LENGTH_MAX
from kourou.model.refused_settings import promises_nothing

SHOWN_LENGTH = 80
"""The number of characters of a refused value that are shown."""

_log = logging.getLogger("kourou.client")
_warned: set[str] = set()
_WHOLE_NUMBER = re.compile(r"-?[0-9]{1,19}", re.ASCII)
_COLUMNS = ("seed", "rocketmq")


class _Same(enum.Enum):
    """Marks "the same as Kourou's default" in the columns of other products."""

    SAME = enum.auto()


SAME = _Same.SAME


@dataclass(frozen=True, slots=True)
class ValueForm:
    """Which values are valid if the type does not define it; `expected` describes them.

    `accepts` checks a non-empty text, or an object that is not a number, text or flag. `parse`
    converts a text to the value.
    """

    expected: str
    accepts: Callable[[Any], bool] | None = None
    parse: Callable[[str], Any] | None = None


FUNCTION = ValueForm("a function", callable)


@dataclass(frozen=True, slots=True)
class Setting:
    """The declaration of one setting.

    `key` is its name in files, `name` that of its attribute. `low` and `high` are inclusive.
    `pattern`: a regular expression that the whole text must match. `dynamic` settings may be
    changed while the service runs. `environment` is a variable that is read in addition to
    KOUROU_<KEY>. `seed` is the default that the design documents state ("" if they do not),
    `rocketmq` that of RocketMQ 4.9 ("" if it has no such key); `same`: which of them equal Kourou's
    default. `default_text` replaces the default in generated pages if the default depends on the
    machine. `without_effect` marks a setting whose feature does not exist yet: it is accepted with
    a warning. `secret_file` marks the path of a file with a secret: if all users of the machine can
    read it, a start logs a warning.
    """

    key: str
    default: Any
    about: str = ""
    name: str = ""
    kind: type[Any] = types.NoneType
    optional: bool = False
    unit: str = ""
    low: int | None = None
    high: int | None = None
    choices: tuple[str, ...] = ()
    pattern: str = ""
    form: ValueForm | None = None
    dynamic: bool = False
    seed: str = ""
    rocketmq: str = ""
    same: tuple[str, ...] = ()
    environment: str = ""
    aliases: tuple[str, ...] = ()
    default_text: str = ""
    without_effect: bool = False
    secret_file: bool = False

    def __post_init__(self) -> None:
        if self.kind is types.NoneType:
            object.__setattr__(self, "kind", type(self.default))

    @property
    def environment_name(self) -> str:
        """KOUROU_ and the key in capitals: brokerName is KOUROU_BROKER_NAME."""
        return environment_name(self.key)

    @property
    def shown_default(self) -> str:
        """The default as pages show it."""
        return self.default_text or self.format(self.default)

    @property
    def full_name(self) -> str:
        """The attribute with the key, as errors about values show it."""
        return self.name if self.key == self.name else f"{self.name} ({self.key})"

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

    @property
    def expected(self) -> str:
        """A description of the accepted texts."""
        if self.form is not None:
            return self.form.expected
        if self.choices or self.kind is bool:
            return "one of " + self.range_text
        if self.kind is int:
            words = ["a whole number", self.range_text, self.unit and f"in {self.unit}"]
            return ", ".join(filter(None, words))
        return self.about if self.pattern else "a value"

    # -- texts ------------------------------------------------------------------------------------

    def parse(self, text: str) -> Any:
        """Return the value of a text. Raises ConfigError with the reason and the allowed values."""
        if any(ord(char) < 0x20 or ord(char) == 0x7F for char in text.strip()):
            raise ConfigError(f"{self.key} contains a control character")
        value = self.read(text)
        if not self.accepts(value):
            raise ConfigError(
                f"{self.key}={text.strip()!r} is refused", hint=f"expected: {self.expected}"
            )
        return value

    def read(self, text: str) -> Any:
        """Return the value of a text; a text that is not of this kind is returned as it is."""
        text = text.strip()
        if self.form is not None and self.form.parse is not None:
            return self.form.parse(text)
        if not text and self.optional:
            return None
        if self.kind is bool:
            return {"true": True, "false": False}.get(text.lower(), text)
        if self.kind is int:
            return int(text) if _WHOLE_NUMBER.fullmatch(text) else text
        if self.kind is float:
            try:
                return float(text)
            except ValueError:
                return text
        if self.kind is tuple:
            return tuple(part.strip() for part in text.split(";") if part.strip())
        if self.kind is Path:
            return _path(text) if text else text
        return self.stored(text)

    def format(self, value: Any) -> str:
        """Return the text that `parse` reads back; None becomes the empty text."""
        if value is None:
            return ""
        if isinstance(value, bool):
            return "true" if value else "false"
        return str(value.value) if isinstance(value, enum.Enum) else str(value)

    # -- values -----------------------------------------------------------------------------------

    def stored(self, value: Any) -> Any:
        """Return a value in the type in which it is kept: a text as its enum, a list as a tuple."""
        if issubclass(self.kind, enum.StrEnum):
            return self.kind(value) if type(value) is str and value in self.choices else value
        if self.kind is tuple and isinstance(value, (list, set, frozenset)):
            return tuple(value if isinstance(value, list) else sorted(value, key=str))
        if self.kind is dict and isinstance(value, Mapping):
            return dict(value)
        return value

    def accepts(self, value: Any) -> bool:
        """Return whether a stored value is allowed."""
        if value is None:
            return self.optional
        if self.kind in (int, float):
            return self._accepts_number(value)
        if self.kind is tuple:
            return isinstance(value, tuple) and _all_texts(value)
        if self.kind is dict:
            return isinstance(value, dict) and _all_texts((*value, *value.values()))
        if self.kind not in (bool, str, Path) and not issubclass(self.kind, enum.StrEnum):
            return self.form is not None and self._has_form(value)
        if self.kind is not str or not isinstance(value, str):
            return isinstance(value, self.kind)
        allowed = not self.choices or value in self.choices
        matches = not self.pattern or re.fullmatch(self.pattern, value) is not None
        return allowed and matches and (not value or self._has_form(value))

    def _accepts_number(self, value: Any) -> bool:
        if type(value) is not int and not (self.kind is float and type(value) is float):
            return False
        if self.choices and str(value) not in self.choices:
            return False
        above = self.low is None or value >= self.low
        return math.isfinite(value) and above and (self.high is None or value <= self.high)

    def _has_form(self, value: Any) -> bool:
        return self.form is None or self.form.accepts is None or self.form.accepts(value)


def _all_texts(values: Iterable[Any]) -> bool:
    return all(isinstance(value, str) for value in values)


def _path(text: str) -> Path:
    home = str(Path.home())
    for prefix in ("${user.home}", "${HOME}", "$HOME"):
        if text == prefix or text.startswith(prefix + "/"):
            text = home + text[len(prefix) :]
    return Path(text).expanduser()


def environment_name(key: str) -> str:
    """Return KOUROU_ and the key in capitals, words separated by `_`; a dot becomes `_`, too."""
    out = ["KOUROU_"]
    for at, char in enumerate(key):
        before, after = key[at - 1 : at], key[at + 1 : at + 2]
        starts_word = char.isupper() and (
            before.islower() or before.isdigit() or (before.isupper() and after.islower())
        )
        out.append(("_" if starts_word else "") + ("_" if char == "." else char.upper()))
    return "".join(out)


def nearest(text: str, names: Iterable[str], cutoff: float) -> str:
    """Return the name that is most similar, whatever its capitals; "" if none is."""
    by_form = {name.lower(): name for name in names}
    found = difflib.get_close_matches(text.lower(), by_form, n=1, cutoff=cutoff)
    return by_form[found[0]] if found else ""


# -- declarations ---------------------------------------------------------------------------------


def setting(
    default: Any,
    key: str,
    about: str,
    *,
    unit: str = "",
    low: int | None = None,
    high: int | None = None,
    choices: tuple[str, ...] = (),
    pattern: str = "",
    form: ValueForm | None = None,
    dynamic: bool = False,
    seed: str | _Same = "",
    rocketmq: str | _Same = "",
    environment: str = "",
    aliases: tuple[str, ...] = (),
    default_text: str = "",
    without_effect: bool = False,
    secret_file: bool = False,
) -> Any:
    """Create a field of a settings class: see `Setting`.

    A function as the default is called when needed. A dictionary is copied for every object.
    """
    declared = dict(locals())
    del declared["default"]
    if isinstance(default, dict):
        return dataclasses.field(
            default_factory=lambda: dict(default), hash=False, metadata=declared
        )
    if isinstance(default, types.FunctionType):
        return dataclasses.field(default_factory=default, metadata=declared)
    return dataclasses.field(default=default, metadata=declared)


def settings_of(cls: type[Any]) -> tuple[Setting, ...]:
    """Return the settings that a settings class declares, in the order of its fields."""
    return _settings_of(typing.cast("Hashable", cls))  # mypy does not treat a class as hashable


@cache
def _settings_of(cls: Any) -> tuple[Setting, ...]:
    return tuple(_of_field(cls, field) for field in dataclasses.fields(cls) if field.metadata)


def _of_field(cls: type[Any], field: dataclasses.Field[Any]) -> Setting:
    declared: dict[str, Any] = dict(field.metadata)
    default = (
        field.default
        if field.default is not dataclasses.MISSING
        else typing.cast("Any", field.default_factory)()
    )
    kind: type[Any] = Path if isinstance(default, Path) else type(default)
    if default is None:
        kind = object if declared["form"] else _kind_of(typing.get_type_hints(cls)[field.name])
    if issubclass(kind, enum.StrEnum):
        declared["choices"] = tuple(one.value for one in kind)
    same = tuple(column for column in _COLUMNS if declared[column] is SAME)
    declared |= dict.fromkeys(same, "")
    one = Setting(
        default=default, name=field.name, kind=kind, optional=default is None, same=same, **declared
    )
    columns: dict[str, Any] = dict.fromkeys(same, one.shown_default)
    return dataclasses.replace(one, **columns)


def _kind_of(hint: Any) -> type[Any]:
    """Return the type of an optional setting (`X | None`)."""
    inner = [part for part in typing.get_args(hint) if part is not types.NoneType]
    assert len(inner) == 1, f"a setting has one type, not {hint}"
    return typing.cast("type[Any]", inner[0])


# -- classes that code makes ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class InertKey:
    """A key of RocketMQ's clients that has no effect in Kourou.

    It is accepted; a value other than `usual` causes a warning with the reason `why`. With
    `refused` other values are refused instead, because ignoring them would do harm.
    """

    usual: str
    why: str
    refused: bool = False


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Base class of client settings: checks the values, and knows RocketMQ's names."""

    inert_keys: ClassVar[Mapping[str, InertKey]] = {}

    def __post_init__(self) -> None:
        for one in settings_of(type(self)):
            given = getattr(self, one.name)
            value = one.stored(given)
            plain = one.kind is not str or value is None or is_plain_text(value)
            if not plain or not one.accepts(value):
                raise refused_value(one, given)
            if value is not given:
                object.__setattr__(self, one.name, value)
            if one.without_effect and value != one.default:
                _warn_without_effect(one.name)

    @classmethod
    def by_key(cls) -> Mapping[str, Setting]:
        """Return every setting by its key in files."""
        return {one.key: one for one in settings_of(cls)}

    @classmethod
    def from_rocketmq(cls, **settings: Any) -> Self:
        """Create settings by RocketMQ's names; values may be texts as in properties files.

        A setting that RocketMQ does not have uses Kourou's name in camel case: `logMessages`. Keys
        without effect are accepted with a warning. An unknown name raises ConfigError, which
        suggests the nearest one.
        """
        known = {key: one for one in settings_of(cls) for key in (one.key, *one.aliases)}
        chosen: dict[str, Any] = {}
        for key, value in settings.items():
            if promises_nothing(key, str(value)):
                continue
            if key in cls.inert_keys:
                _pass_over(key, value, cls.inert_keys[key])
            elif key in known:
                one = known[key]
                chosen[one.name] = one.read(value) if isinstance(value, str) else value
            else:
                raise missing_setting(cls.__name__, key, known)
        return cls(**chosen)

    @classmethod
    def describe(cls) -> list[Mapping[str, Any]]:
        """Return for every setting its names, default, range, unit, description and effect."""
        return [
            {
                "name": one.name,
                "default": one.default,
                "doc": one.about,
                "rocketmq": one.key if one.rocketmq or "rocketmq" in one.same else "",
                "minimum": one.low,
                "maximum": one.high,
                "unit": one.unit,
                "without_effect": one.without_effect,
            }
            for one in settings_of(cls)
        ]


def is_plain_text(value: Any) -> bool:
    """Return whether a value is a text of acceptable length without control characters."""
    return isinstance(value, str) and len(value) <= SETTING_LENGTH_MAX and value.isprintable()


def missing_setting(where: str, key: str, known: Mapping[str, Setting]) -> ConfigError:
    """Return the error for an unknown key, with the nearest known one."""
    keys = {one.name: key for key, one in known.items()} | {key: key for key in known}
    found = nearest(key, keys, cutoff=0.6)
    return ConfigError(
        f"{where} has no setting {key!r}", hint=f"did you mean {keys[found]}?" if found else ""
    )


def refused_value(one: Setting, value: Any) -> ConfigError:
    """Return the error for an invalid value, which describes valid ones."""
    shown = repr(value)
    if len(shown) > SHOWN_LENGTH:
        shown = shown[:SHOWN_LENGTH] + "…"
    return ConfigError(f"{one.full_name} is {shown}; it must be {_expected_value(one)}")


def _expected_value(one: Setting) -> str:
    if one.form is None and one.kind in (int, float):
        words = ["a whole number" if one.kind is int else "a number"]
        if one.low is not None:
            limits = f"of at least {one.low}"
            words.append(limits if one.high is None else f"between {one.low} and {one.high}")
        return " ".join(filter(None, (*words, one.unit)))
    others = {
        bool: "true or false",
        tuple: "texts, in a file separated by ;",
        dict: "texts by text",
        str: f"a text of at most {SETTING_LENGTH_MAX} printable characters",
    }
    return one.expected if one.form is not None else others.get(one.kind, one.expected)


def _pass_over(key: str, value: Any, inert: InertKey) -> None:
    text = str(value).strip()
    if text.lower() == inert.usual.lower():
        return
    if inert.refused:
        raise ConfigError(
            f"{key} is {value!r}, which this version does not support", hint=inert.why
        )
    if _is_new(key):
        _log.warning(
            "setting-ignored: %(setting)s has no effect in this version of Kourou: %(reason)s",
            {"setting": key, "reason": inert.why},
        )


def _warn_without_effect(name: str) -> None:
    if _is_new(name):
        _log.warning(
            "setting-ineffective: %(setting)s has no effect in this version of Kourou",
            {"setting": name},
        )


def _is_new(name: str) -> bool:
    """True once per name: settings objects are copied often, and services warn once."""
    if name in _warned:
        return False
    _warned.add(name)
    return True
