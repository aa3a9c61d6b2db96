"""The declaration and validation of client settings.

A value of the wrong type or out of range raises `ConfigError` when the object is created, so every
existing settings object is valid. The error names the setting, the range and the unit.

State: soft: the settings for which this process logged that they have no effect.
"""

from __future__ import annotations

import dataclasses
import difflib
import logging
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar, Self

from kourou.errors import ConfigError
from kourou.model.limits import SETTING_LENGTH_MAX
from kourou.model.refused_settings import promises_nothing

HOUR_MS = 3_600_000
SHOWN_LENGTH = 80
"""The number of characters of a refused value that are shown."""

_log = logging.getLogger("kourou.client")
_warned: set[str] = set()
_WHOLE_NUMBER = re.compile(r"-?[0-9]{1,19}", re.ASCII)
_FORM = "form"


@dataclass(frozen=True, slots=True)
class Form:
    """Which values are valid if the default does not define it; `wanted` describes them.

    `accepts` checks a non-empty text, or an object that is not a number, text or flag. None is
    always accepted if it is the default. `parse` converts a text to the value.
    """

    wanted: str
    accepts: Callable[[Any], bool] | None = None
    parse: Callable[[str], Any] | None = None


FUNCTION = Form("a function", callable)


@dataclass(frozen=True, slots=True)
class InertKey:
    """A key of RocketMQ's clients that has no effect in Kourou.

    It is accepted; a value other than `usual` causes a warning with the reason `why`. With
    `refused` other values are refused instead, because ignoring them would do harm.
    """

    usual: str
    why: str
    refused: bool = False


def setting(
    default: Any,
    doc: str,
    *,
    rocketmq: str = "",
    unit: str = "",
    minimum: int | None = None,
    maximum: int | None = None,
    form: Form | None = None,
    without_effect: bool = False,
) -> Any:
    """Return a dataclass field with its documentation; `rocketmq` is its name in RocketMQ.

    `minimum` and `maximum` are inclusive. `without_effect` marks a setting whose feature does not
    exist yet: it is accepted, with a warning that it has no effect.
    """
    about: dict[str, Any] = {
        "metadata": {
            "doc": doc,
            "rocketmq": rocketmq,
            "minimum": minimum,
            "maximum": maximum,
            "unit": unit,
            "without_effect": without_effect,
            _FORM: form,
        }
    }
    if isinstance(default, dict):
        return dataclasses.field(default_factory=lambda: dict(default), hash=False, **about)
    return dataclasses.field(default=default, **about)


def key_of(item: dataclasses.Field[Any]) -> str:
    """Return the key of a setting in files: RocketMQ's name, or else Kourou's name in its style."""
    rocketmq: str = item.metadata["rocketmq"]
    if rocketmq:
        return rocketmq
    first, *rest = item.name.split("_")
    return first + "".join(word.capitalize() for word in rest)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Base class of client settings: validation, and RocketMQ's names."""

    inert_keys: ClassVar[Mapping[str, InertKey]] = {}

    def __post_init__(self) -> None:
        for item in dataclasses.fields(self):
            given = getattr(self, item.name)
            value = _checked(item, given)
            if value is not given:
                object.__setattr__(self, item.name, value)
            if item.metadata["without_effect"] and value != _default(item):
                _warn_once(item.name)

    @classmethod
    def by_key(cls) -> Mapping[str, dataclasses.Field[Any]]:
        """Return every setting by its key in files."""
        return {key_of(item): item for item in dataclasses.fields(cls)}

    @classmethod
    def from_rocketmq(cls, **settings: Any) -> Self:
        """Create settings by RocketMQ's names; values may be texts as in properties files.

        A setting that RocketMQ does not have uses Kourou's name in camel case: `logMessages`. Keys
        without effect are accepted with a warning. An unknown name raises ConfigError, which
        suggests the nearest one.
        """
        known = cls.by_key()
        chosen: dict[str, Any] = {}
        for name, value in settings.items():
            if promises_nothing(name, str(value)):
                continue
            if name in cls.inert_keys:
                _pass_over(name, value, cls.inert_keys[name])
            elif name in known:
                item = known[name]
                chosen[item.name] = _parsed(item, value) if isinstance(value, str) else value
            else:
                raise unknown_key(cls.__name__, name, known)
        return cls(**chosen)

    @classmethod
    def describe(cls) -> list[Mapping[str, Any]]:
        """Return for every setting its names, default, range, unit, description and effect."""
        return [
            {
                "name": item.name,
                "default": _default(item),
                **{key: value for key, value in item.metadata.items() if key != _FORM},
            }
            for item in dataclasses.fields(cls)
        ]


def unknown_key(where: str, name: str, known: Mapping[str, dataclasses.Field[Any]]) -> ConfigError:
    """Return the error for an unknown key, with the nearest known one."""
    by_any_name = {key.lower(): key for key in known}
    by_any_name |= {item.name: key for key, item in known.items()}
    near = difflib.get_close_matches(name.lower(), by_any_name, n=1)
    return ConfigError(
        f"{where} has no setting {name!r}",
        hint=f"did you mean {by_any_name[near[0]]}?" if near else "",
    )


# -- values ---------------------------------------------------------------------------------------


def _default(item: dataclasses.Field[Any]) -> Any:
    if item.default_factory is not dataclasses.MISSING:
        return item.default_factory()
    return item.default


def _checked(item: dataclasses.Field[Any], value: Any) -> Any:
    """Return `value` in its stored form. Raises ConfigError if it is invalid."""
    default, form = _default(item), item.metadata[_FORM]
    kept = value
    if isinstance(default, bool):
        good = isinstance(value, bool)
    elif isinstance(default, StrEnum):
        good = value in [member.value for member in type(default)] if _is_text(value) else False
        kept = type(default)(value) if good and type(value) is str else value
    elif isinstance(default, int):
        good = type(value) is int and _within(item, value)
    elif isinstance(default, float):
        good = type(value) in (int, float) and math.isfinite(value) and _within(item, value)
    elif isinstance(default, str):
        good = _is_text(value) and len(value) <= SETTING_LENGTH_MAX and value.isprintable()
        good = good and (form is None or not value or _accepted(form, value))
    elif isinstance(default, tuple):
        good = isinstance(value, (tuple, list, set, frozenset)) and all(map(_is_text, value))
        kept = _as_tuple(value) if good else value
    elif isinstance(default, dict):
        good = isinstance(value, Mapping) and all(
            _is_text(key) and _is_text(one) for key, one in value.items()
        )
        kept = dict(value) if good else value
    else:
        assert form is not None, f"{item.name} says in a form what it accepts"
        good = (value is None and default is None) or _accepted(form, value)
    if not good:
        raise refused(item, value)
    return kept


def _accepted(form: Form, value: Any) -> bool:
    return form.accepts is None or form.accepts(value)


def _within(item: dataclasses.Field[Any], value: float) -> bool:
    low, high = item.metadata["minimum"], item.metadata["maximum"]
    return (low is None or value >= low) and (high is None or value <= high)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _as_tuple(value: Iterable[str]) -> tuple[str, ...]:
    if isinstance(value, tuple):
        return value
    return tuple(sorted(value) if isinstance(value, (set, frozenset)) else value)


def refused(item: dataclasses.Field[Any], value: Any) -> ConfigError:
    """Return the error for an invalid value, which describes valid ones."""
    shown = repr(value)
    if len(shown) > SHOWN_LENGTH:
        shown = shown[:SHOWN_LENGTH] + "…"
    return ConfigError(f"{named(item)} is {shown}; it must be {_wanted(item)}")


def named(item: dataclasses.Field[Any]) -> str:
    """Return the setting's name in code and its key in files."""
    key = key_of(item)
    return item.name if key == item.name else f"{item.name} ({key})"


def _wanted(item: dataclasses.Field[Any]) -> str:
    default, form = _default(item), item.metadata[_FORM]
    if form is not None:
        wanted: str = form.wanted
        return wanted
    if isinstance(default, bool):
        return "true or false"
    if isinstance(default, StrEnum):
        return "one of " + ", ".join(type(default))
    if isinstance(default, (int, float)):
        return _wanted_number(item, default)
    if isinstance(default, tuple):
        return "texts, in a file separated by ;"
    if isinstance(default, dict):
        return "texts by text"
    return f"a text of at most {SETTING_LENGTH_MAX} printable characters"


def _wanted_number(item: dataclasses.Field[Any], default: float) -> str:
    low, high, unit = (item.metadata[key] for key in ("minimum", "maximum", "unit"))
    words = ["a whole number" if isinstance(default, int) else "a number"]
    if low is not None and high is not None:
        words.append(f"between {low} and {high}")
    elif low is not None:
        words.append(f"of at least {low}")
    if unit:
        words.append(unit)
    return " ".join(words)


# -- texts ----------------------------------------------------------------------------------------


def _parsed(item: dataclasses.Field[Any], text: str) -> Any:
    """Return the value of a text from a properties file or the environment."""
    default, form, text = _default(item), item.metadata[_FORM], text.strip()
    if form is not None and form.parse is not None:
        return form.parse(text)
    if default is None and not text:
        return None
    if isinstance(default, bool):
        truths = {"true": True, "false": False}
        return truths.get(text.lower(), text)
    if isinstance(default, int):
        return int(text) if _WHOLE_NUMBER.fullmatch(text) else text
    if isinstance(default, float):
        try:
            return float(text)
        except ValueError:
            return text
    if isinstance(default, tuple):
        return tuple(part.strip() for part in text.split(";") if part.strip())
    return text


def _pass_over(name: str, value: Any, inert: InertKey) -> None:
    text = str(value).strip()
    if text.lower() == inert.usual.lower():
        return
    if inert.refused:
        raise ConfigError(
            f"{name} is {value!r}, which this version does not support", hint=inert.why
        )
    _warn_once(name, inert.why)


def _warn_once(name: str, why: str = "") -> None:
    """Warn once per name, as services do, because settings objects are copied often."""
    if name not in _warned:
        _warned.add(name)
        reason = f": {why}" if why else ""
        _log.warning("%s has no effect in this version of Kourou%s", name, reason)
