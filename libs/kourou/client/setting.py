"""The form that all settings of a client have.

Lives here: one field with its documentation, the range check, and the way in for RocketMQ's names.
May not live here: any setting (kourou.client.settings).

A setting out of range is a `ConfigError` when the object is made, so a settings object that exists
is a good one.

State: soft: which settings this process was told to have no effect yet.
"""

from __future__ import annotations

import dataclasses
import difflib
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Self

from kourou.client.allocation import allocation_named
from kourou.errors import ConfigError

_log = logging.getLogger("kourou.client")
_warned: set[str] = set()


def setting(
    default: Any,
    doc: str,
    *,
    rocketmq: str = "",
    minimum: int | None = None,
    maximum: int | None = None,
    without_effect: bool = False,
) -> Any:
    """A field with its documentation; `rocketmq` is the name users of RocketMQ know it by.

    `without_effect` marks a setting whose feature is not there yet: setting it is accepted, and
    said to do nothing.
    """
    return dataclasses.field(
        default=default,
        metadata={
            "doc": doc,
            "rocketmq": rocketmq,
            "minimum": minimum,
            "maximum": maximum,
            "without_effect": without_effect,
        },
    )


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Range checks and RocketMQ's spelling, for all of them."""

    def __post_init__(self) -> None:
        for item in dataclasses.fields(self):
            value = getattr(self, item.name)
            low, high = item.metadata["minimum"], item.metadata["maximum"]
            if (low is not None and value < low) or (high is not None and value > high):
                raise ConfigError(
                    f"{item.name} is {value}; it must be "
                    + (f"at least {low}" if high is None else f"between {low} and {high}")
                )
            if item.metadata["without_effect"] and value != item.default:
                _warn_once(item.name)

    @classmethod
    def from_rocketmq(cls, **settings: Any) -> Self:
        """Settings by RocketMQ's names; values may be texts as properties files have them.

        An unknown name is a ConfigError that tells the nearest known one.
        """
        known = {
            item.metadata["rocketmq"]: item
            for item in dataclasses.fields(cls)
            if item.metadata["rocketmq"]
        }
        chosen: dict[str, Any] = {}
        for name, value in settings.items():
            if name not in known:
                near = difflib.get_close_matches(name, known, n=1)
                raise ConfigError(
                    f"{cls.__name__} has no setting {name!r}",
                    hint=f"did you mean {near[0]}?" if near else "",
                )
            item = known[name]
            chosen[item.name] = _converted(name, value, item.default)
        return cls(**chosen)

    @classmethod
    def describe(cls) -> list[Mapping[str, Any]]:
        """Every setting with its name, RocketMQ's name, default, range, sentence and effect."""
        return [
            {"name": item.name, "default": item.default, **item.metadata}
            for item in dataclasses.fields(cls)
        ]


def _warn_once(name: str) -> None:
    """As services say it of theirs. Settings objects are copied often; once is enough."""
    if name not in _warned:
        _warned.add(name)
        _log.warning("%s has no effect in this version of Kourou", name)


def _converted(name: str, value: Any, default: Any) -> Any:
    """`value` as the type of `default`, from texts too."""
    try:
        if isinstance(default, bool):
            return value if isinstance(value, bool) else _truth(str(value))
        if isinstance(default, StrEnum):
            return type(default)(str(value))
        if isinstance(default, int):
            return int(value)
        if isinstance(default, tuple):
            return tuple(value.split(";") if isinstance(value, str) else value)
    except ValueError:
        raise ConfigError(f"{name} cannot be {value!r}") from None
    if name == "allocateMessageQueueStrategy" and isinstance(value, str):
        return allocation_named(value)
    return value


def _truth(text: str) -> bool:
    truths = {"true": True, "false": False}
    if text.lower() not in truths:
        raise ValueError(text)
    return truths[text.lower()]
