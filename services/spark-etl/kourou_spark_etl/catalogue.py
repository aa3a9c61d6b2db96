"""The available jobs and their options: a table that does not need Spark."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType

from kourou.errors import ConfigError
from kourou.model.names import DLQ_PREFIX, TRACE_TOPIC

Value = bool | int | str
_UNITS_MS = {"millisecond": 1, "second": 1_000, "minute": 60_000, "hour": 3_600_000}
_UNITS_MS["day"] = 24 * _UNITS_MS["hour"]
_DURATION = re.compile(r"([1-9][0-9]{0,8}) (millisecond|second|minute|hour|day)s?")


def duration_ms(text: str) -> int | None:
    """`10 minutes` as ms; None for a text that Spark does not accept either."""
    found = _DURATION.fullmatch(text)
    return None if found is None else int(found[1]) * _UNITS_MS[found[2]]


class Kind(Enum):
    """The type of an option's value in TOML."""

    TEXT = "a text"
    NUMBER = "a whole number"
    FLAG = "true or false"
    DURATION = "a duration like '10 minutes'"


@dataclass(frozen=True, slots=True)
class Option:
    """One option of a job. `low` and `high` limit numbers, inclusive."""

    default: Value
    kind: Kind
    about: str
    low: int = 0
    high: int = 2**31 - 1

    def check(self, where: str, value: object) -> Value:
        """Return the value. Raises ConfigError, which names the expected type, if it is invalid."""
        match self.kind:
            case Kind.FLAG if isinstance(value, bool):
                return value
            case Kind.NUMBER if isinstance(value, int) and not isinstance(value, bool):
                if self.low <= value <= self.high:
                    return value
                raise ConfigError(
                    f"{where} is {value}; it must be between {self.low} and {self.high}"
                )
            case Kind.TEXT if isinstance(value, str):
                return value
            case Kind.DURATION if isinstance(value, str) and duration_ms(value) is not None:
                return value
        raise ConfigError(f"{where} is {value!r}; it must be {self.kind.value}")


@dataclass(frozen=True, slots=True)
class JobKind:
    """The description of a job.

    `reads`: it has a subscription; `subscribe_pattern` is its default, `also` are topics that it
    reads in addition. `tables` are the tables of the read model that it writes.
    """

    about: str
    options: Mapping[str, Option]
    tables: tuple[str, ...] = ()
    reads: bool = True
    subscribe_pattern: str = ""
    also: tuple[str, ...] = ()
    starting: str = "earliest"


JOBS: Mapping[str, JobKind] = MappingProxyType(
    {
        "lake": JobKind(
            "every message of the topics to Parquet, by topic and date, exactly once",
            {
                "path": Option("", Kind.TEXT, "The lake's folder; empty is lake/QUERY in etlPath"),
                "compact": Option("10 minutes", Kind.DURATION, "How often small files are merged"),
                "file_mib": Option(128, Kind.NUMBER, "Files grow to about so many MiB", 1, 4_096),
                "grace": Option(
                    "1 hour",
                    Kind.DURATION,
                    "How long merged files are kept for readers that still use them",
                ),
            },
        ),
        "latency": JobKind(
            "percentiles from sending over storing to consuming, by topic and group",
            {
                "window": Option("1 hour", Kind.DURATION, "Figures are kept by windows so long"),
                "wait": Option(
                    "10 minutes", Kind.DURATION, "A consumption counts so long after its message"
                ),
            },
            tables=("latency",),
            also=(TRACE_TOPIC,),
            starting="latest",
        ),
        "dead_letters": JobKind(
            "dead letters by group, reason and origin",
            {},
            tables=("dead_letters",),
            subscribe_pattern=f"{DLQ_PREFIX}.*",
        ),
        "backlog": JobKind(
            "the lag of groups, whether it grows, and when it will be zero",
            {
                "groups": Option("", Kind.TEXT, "Groups, joined by commas; empty is all"),
                "keep": Option("30 days", Kind.DURATION, "How long its history is kept"),
            },
            tables=("backlog",),
            reads=False,
        ),
        "flights": JobKind(
            "the demo's flights: delays by carrier, route and hour",
            {
                "window": Option("1 day", Kind.DURATION, "Figures are kept by windows so long"),
                "watermark": Option(
                    "2 days", Kind.DURATION, "Flights that come later than that are left out"
                ),
            },
            tables=("flight_delays",),
        ),
    }
)
"""The jobs by their name in the job file."""
