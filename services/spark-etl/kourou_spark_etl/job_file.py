"""The available jobs, and the job file: a TOML file with the queries to run. Every key is checked.

    [queries.orders]
    job = "lake"
    subscribe = "orders,payments"
    trigger = "5 seconds"

    [queries.orders.options]
    file_mib = 256

State: none; the file is read once.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from types import MappingProxyType

from kourou.errors import BadRequest, ConfigError
from kourou.model.limits import JOB_FILE_BYTES_MAX, JOB_QUERIES_MAX
from kourou.model.names import DLQ_PREFIX, TRACE_TOPIC
from kourou_spark_etl.source.options import for_stream, read_options

# -- the jobs and their options -------------------------------------------------------------------

Value = bool | int | str
_UNITS_MS = {"millisecond": 1, "second": 1_000, "minute": 60_000, "hour": 3_600_000}
_UNITS_MS["day"] = 24 * _UNITS_MS["hour"]
_DURATION = re.compile(r"([1-9][0-9]{0,8}) (millisecond|second|minute|hour|day)s?")


def duration_ms(text: str) -> int | None:
    """`10 minutes` as ms; None for a text that Spark does not accept either."""
    found = _DURATION.fullmatch(text)
    return None if found is None else int(found[1]) * _UNITS_MS[found[2]]


class OptionKind(Enum):
    """The type of an option's value in TOML."""

    TEXT = "a text"
    NUMBER = "a whole number"
    FLAG = "true or false"
    DURATION = "a duration like '10 minutes'"


@dataclass(frozen=True, slots=True)
class Option:
    """One option; deploy/spark-etl.toml shows all. `low` and `high` limit numbers, inclusive."""

    default: Value
    kind: OptionKind
    low: int = 0
    high: int = 2**31 - 1

    def check(self, where: str, value: object) -> Value:
        """Return the value. Raises ConfigError, which names the expected type, if it is invalid."""
        match self.kind:
            case OptionKind.FLAG if isinstance(value, bool):
                return value
            case OptionKind.NUMBER if isinstance(value, int) and not isinstance(value, bool):
                if self.low <= value <= self.high:
                    return value
                raise ConfigError(
                    f"{where} is {value}; it must be between {self.low} and {self.high}"
                )
            case OptionKind.TEXT if isinstance(value, str):
                return value
            case OptionKind.DURATION if isinstance(value, str) and duration_ms(value) is not None:
                return value
        raise ConfigError(f"{where} is {value!r}; it must be {self.kind.value}")


@dataclass(frozen=True, slots=True)
class JobKind:
    """The description of a job.

    `reads`: it has a subscription; `subscribe_pattern` is its default, `also` are topics that it
    reads in addition. `tables` are the tables of the read model that it writes.
    """

    options: Mapping[str, Option]
    tables: tuple[str, ...] = ()
    reads: bool = True
    subscribe_pattern: str = ""
    also: tuple[str, ...] = ()
    starting: str = "earliest"


JOBS: Mapping[str, JobKind] = MappingProxyType(
    {
        # Every message of the topics to Parquet, by topic and date, exactly once.
        "lake": JobKind(
            {
                "path": Option("", OptionKind.TEXT),  # empty is lake/QUERY in etlPath
                "compact": Option("10 minutes", OptionKind.DURATION),  # how often files are merged
                "file_mib": Option(128, OptionKind.NUMBER, 1, 4_096),  # files grow to about that
                "grace": Option("1 hour", OptionKind.DURATION),  # merged files are kept for readers
            },
        ),
        # Percentiles from sending over storing to consuming, by topic and group.
        "latency": JobKind(
            {
                "window": Option("1 hour", OptionKind.DURATION),  # of the figures
                "wait": Option("10 minutes", OptionKind.DURATION),  # for a message's consumption
            },
            tables=("latency",),
            also=(TRACE_TOPIC,),
            starting="latest",
        ),
        # Dead letters by group, reason and origin.
        "dead_letters": JobKind({}, tables=("dead_letters",), subscribe_pattern=f"{DLQ_PREFIX}.*"),
        # The lag of groups, whether it grows, and when it will be zero.
        "backlog": JobKind(
            {
                "groups": Option("", OptionKind.TEXT),  # joined by commas; empty is all
                "keep": Option("30 days", OptionKind.DURATION),  # how long its history is kept
            },
            tables=("backlog",),
            reads=False,
        ),
        # The demo's flights: delays by carrier, route and hour.
        "flights": JobKind(
            {
                "window": Option("1 day", OptionKind.DURATION),
                "watermark": Option("2 days", OptionKind.DURATION),  # later flights are left out
            },
            tables=("flight_delays",),
        ),
    }
)
"""The jobs by their name in the job file."""


# -- the job file ---------------------------------------------------------------------------------

TRIGGER = "5 seconds"
AVAILABLE_NOW = "available now"
"""A trigger: process the available messages, then end the query."""

USUAL_JOBS = Path(__file__).with_name("usual_jobs.toml")
"""The default job file of `kourou up --spark`: the queries enabled in deploy/spark-etl.toml."""

_NAME = re.compile(r"[a-z][a-z0-9_-]{0,63}")
_SOURCE: Mapping[str, tuple[str, Option]] = {
    "subscribe": ("subscribe", Option("", OptionKind.TEXT)),
    "subscribe_pattern": ("subscribePattern", Option("", OptionKind.TEXT)),
    "assign": ("assign", Option("", OptionKind.TEXT)),
    "starting_offsets": ("startingOffsets", Option("", OptionKind.TEXT)),
    "starting_timestamp": ("startingTimestamp", Option(0, OptionKind.NUMBER, 0, 2**63 - 1)),
    "max_offsets_per_trigger": (
        "maxOffsetsPerTrigger",
        Option(0, OptionKind.NUMBER, 1, 2**63 - 1),
    ),
    "min_partitions": ("minPartitions", Option(0, OptionKind.NUMBER, 1, 100_000)),
    "fail_on_data_loss": ("failOnDataLoss", Option(True, OptionKind.FLAG)),
    "tags": ("tags", Option("", OptionKind.TEXT)),
    "sql": ("sql", Option("", OptionKind.TEXT)),
    "filter": ("filter", Option("", OptionKind.TEXT)),
    "group": ("group", Option("", OptionKind.TEXT)),
}
"""Key of the job file -> option of `format("kourou")`, and its type."""

_TOPICS = ("subscribe", "subscribe_pattern", "assign")
_OWN = ("job", "trigger", "enabled", "options", "name_server")


@dataclass(frozen=True, slots=True)
class QuerySpec:
    """One query. `trigger_ms` None: process the available messages once. `source`: read options."""

    name: str
    job: str
    trigger_ms: int | None
    source: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, Value] = field(default_factory=dict)
    enabled: bool = True

    @property
    def kind(self) -> JobKind:
        """The description of its job."""
        return JOBS[self.job]

    def text(self, option: str) -> str:
        """The value of a text or duration option."""
        value = self.options[option]
        assert isinstance(value, str)
        return value

    def number(self, option: str) -> int:
        """The value of a number option."""
        value = self.options[option]
        assert isinstance(value, int)
        return value

    def period_ms(self, option: str) -> int:
        """The value of a duration option, in ms."""
        found = duration_ms(self.text(option))
        assert found is not None
        return found


def load_job_file(path: Path) -> tuple[QuerySpec, ...]:
    """Read the queries of a file. Raises ConfigError, which names file, query and key."""
    try:
        if path.stat().st_size > JOB_FILE_BYTES_MAX:
            raise ConfigError(f"{path} is too large for a job file")
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot read job file {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8 text at byte {error.start}") from None
    try:
        return read_jobs(text)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error.message}", hint=error.hint) from None


def read_jobs(text: str) -> tuple[QuerySpec, ...]:
    """The queries of a job file's text, in its order."""
    try:
        tree = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigError(f"the file is not valid TOML: {error}") from None
    _refuse_unknown("the file", tree, ("queries",))
    queries = tree.get("queries", {})
    if not isinstance(queries, dict) or not queries:
        raise ConfigError("the file has no query", hint="add [queries.NAME] with job = …")
    if len(queries) > JOB_QUERIES_MAX:
        raise ConfigError(f"the file has {len(queries)} queries, too many for one driver")
    return tuple(_query(name, table) for name, table in queries.items())


def _query(name: str, table: object) -> QuerySpec:
    where = f"queries.{name}"
    if _NAME.fullmatch(name) is None:
        raise ConfigError(
            f"{where}: a query name must have lowercase letters, digits, '-' and '_', "
            "at most 64 characters"
        )
    if not isinstance(table, dict):
        raise ConfigError(f"{where} is not a table", hint=f"[{where}]")
    job = table.get("job")
    if not isinstance(job, str) or job not in JOBS:
        raise ConfigError(f"{where}.job is {job!r}; it must be one of {', '.join(JOBS)}")
    kind = JOBS[job]
    _refuse_unknown(where, table, (*_OWN, *(_SOURCE if kind.reads else ())))
    return QuerySpec(
        name,
        job,
        _trigger(where, table.get("trigger", TRIGGER)),
        _source(where, kind, table),
        _options(where, kind, table.get("options", {})),
        enabled=_flag(where, table),
    )


def _flag(where: str, table: Mapping[str, object]) -> bool:
    value = table.get("enabled", True)
    if not isinstance(value, bool):
        raise ConfigError(f"{where}.enabled is {value!r}; it must be true or false")
    return value


def _trigger(where: str, value: object) -> int | None:
    if value == AVAILABLE_NOW:
        return None
    found = duration_ms(value) if isinstance(value, str) else None
    if found is None:
        raise ConfigError(
            f"{where}.trigger is {value!r}; it must be a duration like '5 seconds', "
            f"or '{AVAILABLE_NOW}'"
        )
    return found


def _source(where: str, kind: JobKind, table: Mapping[str, object]) -> dict[str, str]:
    """The options of the read as texts, as Spark requires them."""
    source: dict[str, str] = {}
    server = table.get("name_server")
    if server is not None:
        if not isinstance(server, str) or not server:
            raise ConfigError(f"{where}.name_server is {server!r}; it must be host:port")
        source["nameServer"] = server
    if not kind.reads:
        return source
    for key, (option, form) in _SOURCE.items():
        if key in table:
            value = form.check(f"{where}.{key}", table[key])
            source[option] = str(value).lower() if isinstance(value, bool) else str(value)
    given = [key for key in _TOPICS if key in table]
    if len(given) > 1:
        raise ConfigError(f"{where} has both {given[0]} and {given[1]}; give one of them")
    if not given:
        if not kind.subscribe_pattern:
            raise ConfigError(f"{where} has no topic", hint='subscribe = "orders"')
        source["subscribePattern"] = kind.subscribe_pattern
    if kind.also:
        if "subscribe" not in source:
            raise ConfigError(f"{where}: this job supports topics by subscribe only")
        source["subscribe"] = ",".join((source["subscribe"], *kind.also))
    if "starting_offsets" not in table and "starting_timestamp" not in table:
        source["startingOffsets"] = kind.starting
    _check_read(where, source)
    return source


def _check_read(where: str, source: Mapping[str, str]) -> None:
    """Check the read options before Java starts; otherwise the query would fail again and again.

    The name server is often known only when the service starts, so a placeholder is used here.
    """
    try:
        for_stream(read_options({"nameServer": "127.0.0.1", **source}))
    except BadRequest as error:
        text = error.message.replace("'nameServer'", "'name_server'")
        for key, (option, _) in _SOURCE.items():
            text = text.replace(repr(option), repr(key))
        text = text.replace("the option ", "the key ")
        raise ConfigError(f"{where}: {text}", hint=error.hint) from None


def _options(where: str, kind: JobKind, given: object) -> dict[str, Value]:
    place = f"{where}.options"
    if not isinstance(given, dict):
        raise ConfigError(f"{place} is not a table", hint=f"[{place}]")
    _refuse_unknown(place, given, kind.options)
    return {
        name: option.check(f"{place}.{name}", given[name]) if name in given else option.default
        for name, option in kind.options.items()
    }


def _refuse_unknown(where: str, table: Mapping[str, object], known: Collection[str]) -> None:
    for key in table:
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(known) or 'none'}"
            raise ConfigError(f"{where} has the unknown key {key!r}", hint=hint)
