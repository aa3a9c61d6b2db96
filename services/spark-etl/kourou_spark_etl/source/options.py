"""The options of `spark.read.format("kourou")`, validated.

Names are those of Kafka's connector if the meaning is the same. Spark passes them in lower case, so
they are case-insensitive.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TypeAlias

from kourou.client.filters.expressions import Sql, Wanted
from kourou.client.filters.python_filter import Filter
from kourou.client.session.discovery import NoNameServer, discover
from kourou.errors import BadRequest, ConfigError, Rejected
from kourou.filtering.tags import check_expression
from kourou.model.limits import (
    OFFSET_MAX,
    PULL_MESSAGES_MAX,
    SPARK_PARTITIONS_MAX,
    SPARK_PULL_WINDOW_MAX,
    SPARK_READ_TIMEOUT_MS_MAX,
)
from kourou.model.names import check_group, check_topic
from kourou.model.subscription import MATCH_ALL
from kourou.model.topic import MessageQueue
from kourou_spark_etl.source.offsets import QueueOffsets, json_of

PULL_WINDOW = 2
READ_TIMEOUT_MS = 60_000
EARLIEST = -2
LATEST = -1
"""Offsets in JSON: the first stored message, and the end of the queue."""

DEFAULT_GROUP = "spark-source"
"""The group of pulls if no group is set. It commits nothing."""


class Edge(Enum):
    """The start or the end of every queue."""

    EARLIEST = "earliest"
    LATEST = "latest"


@dataclass(frozen=True, slots=True)
class AtTime:
    """The first message stored at or after a time in ms."""

    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class AtTimes:
    """The first messages stored at or after a time for each queue."""

    times_ms: QueueOffsets


Place: TypeAlias = Edge | AtTime | AtTimes | QueueOffsets
"""Where a read starts or ends; Offsets may contain EARLIEST and LATEST."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """The options of a read.

    Exactly one of `topics`, `pattern`, `assigned` is set, and one of `name_servers`, `path`.
    `starting`, `ending` None: the default of a batch or a stream. Empty `group`: no offsets are
    committed at brokers.
    """

    name_servers: str = ""
    path: Path | None = None
    broker_name: str = ""
    topics: tuple[str, ...] = ()
    pattern: str = ""
    assigned: tuple[MessageQueue, ...] = ()
    starting: Place | None = None
    ending: Place | None = None
    max_offsets_per_trigger: int | None = None
    min_partitions: int | None = None
    fail_on_data_loss: bool = True
    wanted: Wanted = MATCH_ALL
    group: str = ""
    pull_batch_size: int = PULL_MESSAGES_MAX
    pull_window: int = PULL_WINDOW
    read_timeout_ms: int = READ_TIMEOUT_MS


NAMES: tuple[str, ...] = (
    "nameServer",
    "namesrvAddr",
    "path",
    "brokerName",
    "subscribe",
    "subscribePattern",
    "assign",
    "startingOffsets",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "endingOffsets",
    "endingTimestamp",
    "endingOffsetsByTimestamp",
    "maxOffsetsPerTrigger",
    "minPartitions",
    "failOnDataLoss",
    "tags",
    "sql",
    "filter",
    "group",
    "pullBatchSize",
    "pullWindow",
    "readTimeoutMs",
)
"""Every option of a read."""

_SERVERS_HINT = "set it to host:port;host:port, or set 'path' to a store directory"
_NOT_WITH_PATH = ("nameServer", "namesrvAddr", "filter", "group", "sql")


def read_options(
    given: Mapping[str, str], environment: Mapping[str, str] | None = None
) -> ReadOptions:
    """Parse the options. Raises BadRequest, which names the unknown, invalid or missing option."""
    texts = known_options(given, NAMES, "reading")
    path = texts.get("path")
    if path is not None:
        for name in _NOT_WITH_PATH:
            if name in texts:
                raise wrong(name, texts[name], "it is not supported with a store directory (path)")
    elif "brokerName" in texts:
        raise wrong("brokerName", texts["brokerName"], "it requires a store directory (path)")
    topics, pattern, assigned = _topics(texts)
    return ReadOptions(
        name_servers="" if path is not None else name_servers(texts, environment, _SERVERS_HINT),
        path=None if path is None else _path(path),
        broker_name=texts.get("brokerName", ""),
        topics=topics,
        pattern=pattern,
        assigned=assigned,
        starting=_place(texts, "starting"),
        ending=_place(texts, "ending"),
        max_offsets_per_trigger=number(texts, "maxOffsetsPerTrigger", 1, OFFSET_MAX),
        min_partitions=number(texts, "minPartitions", 1, SPARK_PARTITIONS_MAX),
        fail_on_data_loss=_flag(texts, "failOnDataLoss", default=True),
        wanted=_wanted(texts),
        group=checked(texts, "group", check_group),
        pull_batch_size=number(texts, "pullBatchSize", 1, PULL_MESSAGES_MAX) or PULL_MESSAGES_MAX,
        pull_window=number(texts, "pullWindow", 1, SPARK_PULL_WINDOW_MAX) or PULL_WINDOW,
        read_timeout_ms=number(texts, "readTimeoutMs", 1, SPARK_READ_TIMEOUT_MS_MAX)
        or READ_TIMEOUT_MS,
    )


def for_batch(options: ReadOptions) -> ReadOptions:
    """The options, after a check that they are valid for a batch."""
    if options.max_offsets_per_trigger is not None:
        raise wrong(
            "maxOffsetsPerTrigger", str(options.max_offsets_per_trigger), "it is for streams only"
        )
    if options.starting is Edge.LATEST or _has(options.starting, LATEST):
        raise wrong("startingOffsets", "latest", "the batch would be empty")
    if options.ending is Edge.EARLIEST or _has(options.ending, EARLIEST):
        raise wrong("endingOffsets", "earliest", "the batch would be empty")
    return options


def for_stream(options: ReadOptions) -> ReadOptions:
    """The options, after a check that they are valid for a stream."""
    if options.ending is not None:
        raise BadRequest(
            "the options 'endingOffsets' and 'endingTimestamp' are for batches only: "
            "a stream has no end",
            hint="to stop at the current end, use trigger(availableNow=True)",
        )
    return options


def _has(place: Place | None, mark: int) -> bool:
    return isinstance(place, QueueOffsets) and mark in place.values()


# -- individual options, which writes have as well ------------------------------------------------


def known_options(
    given: Mapping[str, str],
    names: Sequence[str],
    doing: str,
    of_others: Collection[str] = (),
) -> dict[str, str]:
    """The options in the spelling of `names`, without those `of_others` (in lower case).

    Raises BadRequest for any other option.
    """
    known = {name.lower(): name for name in names}
    texts: dict[str, str] = {}
    for name, text in given.items():
        own = known.get(name.lower())
        if own is not None:
            texts[own] = text
        elif name.lower() not in of_others:
            raise BadRequest(
                f"the option {name!r} is unknown", hint=f"{doing} supports {', '.join(names)}"
            )
    return texts


def wrong(name: str, text: str, why: str) -> BadRequest:
    """The error for an option with an invalid value."""
    return BadRequest(f"the option {name!r} is {text!r}: {why}")


def name_servers(texts: Mapping[str, str], environment: Mapping[str, str] | None, hint: str) -> str:
    """The name servers, from an option or the environment. Raises BadRequest with the hint."""
    if "nameServer" in texts and "namesrvAddr" in texts:
        raise wrong("namesrvAddr", texts["namesrvAddr"], "use this name or 'nameServer', not both")
    name = "namesrvAddr" if "namesrvAddr" in texts else "nameServer"
    try:
        found = discover(
            texts.get(name),
            options={},
            environment=os.environ if environment is None else environment,
        )
    except NoNameServer:
        raise BadRequest("the option 'nameServer' is missing", hint=hint) from None
    except ConfigError as error:
        raise wrong(name, texts.get(name, ""), str(error)) from None
    return ";".join(found.addresses)


def number(texts: Mapping[str, str], name: str, low: int, high: int) -> int | None:
    """A whole number within the limits; None if the option is not set."""
    text = texts.get(name)
    if text is None:
        return None
    stripped = text.strip()
    found = int(stripped) if re.fullmatch(r"-?[0-9]{1,19}", stripped) else None
    if found is None or not low <= found <= high:
        raise wrong(name, text, f"it must be a whole number from {low} to {high}")
    return found


def checked(texts: Mapping[str, str], name: str, check: Callable[[str], object]) -> str:
    """A text that `check` accepts; "" if the option is not set."""
    text = texts.get(name)
    if text is None:
        return ""
    try:
        check(text)
    except BadRequest as error:
        raise wrong(name, text, str(error)) from None
    return text


# -- individual options of reads ------------------------------------------------------------------


def _path(text: str) -> Path:
    path = Path(text.removeprefix("file://"))
    if not (path / "commitlog").is_dir():
        raise wrong("path", text, "it is not a store: the directory must contain commitlog")
    return path.absolute()


def _topics(
    texts: Mapping[str, str],
) -> tuple[tuple[str, ...], str, tuple[MessageQueue, ...]]:
    named = [name for name in ("subscribe", "subscribePattern", "assign") if name in texts]
    if not named:
        raise BadRequest(
            "no topic is given", hint="set the option 'subscribe', 'subscribePattern' or 'assign'"
        )
    if len(named) > 1:
        raise BadRequest(f"the options {named[0]!r} and {named[1]!r} exclude each other")
    name, text = named[0], texts[named[0]]
    if name == "assign":
        return (), "", _assigned(text)
    if name == "subscribePattern":
        try:
            re.compile(text)
        except re.error as error:
            raise wrong(name, text, f"it is not a regular expression: {error}") from None
        if not text:
            raise wrong(name, text, "it matches no topic")
        return (), text, ()
    topics = tuple(dict.fromkeys(topic.strip() for topic in text.split(",") if topic.strip()))
    if not topics:
        raise wrong(name, text, "it has no topic")
    checked(texts, name, lambda _: [check_topic(topic) for topic in topics])
    return topics, "", ()


def _assigned(text: str) -> tuple[MessageQueue, ...]:
    what = "the option 'assign'"
    tree = json_of(text, what)
    lists = isinstance(tree, dict) and all(
        isinstance(brokers, dict) and all(isinstance(ids, list) for ids in brokers.values())
        for brokers in tree.values()
    )
    if not lists:
        raise BadRequest(f"{what} cannot be parsed", hint='write {"topic": {"broker": [0, 1]}}')
    numbers = {
        topic: {
            broker: {str(one): 0 for one in ids if isinstance(one, int)}
            for broker, ids in brokers.items()
        }
        for topic, brokers in tree.items()
    }
    queues = tuple(QueueOffsets.of_tree(numbers, what=what))
    if not queues or len(queues) != sum(len(ids) for of in tree.values() for ids in of.values()):
        raise BadRequest(f"{what} has no queue, or an invalid one: {text!r:.100}")
    return queues


def _place(texts: Mapping[str, str], side: str) -> Place | None:
    names = (f"{side}Offsets", f"{side}Timestamp", f"{side}OffsetsByTimestamp")
    named = [name for name in names if name in texts]
    if not named:
        return None
    if len(named) > 1:
        raise BadRequest(f"the options {named[0]!r} and {named[1]!r} exclude each other")
    name, text = named[0], texts[named[0]].strip()
    if name.endswith("OffsetsByTimestamp"):
        return AtTimes(QueueOffsets.of_text(text, what=f"the option {name!r}"))
    if name.endswith("Timestamp"):
        timestamp_ms = number(texts, name, 0, OFFSET_MAX)
        assert timestamp_ms is not None
        return AtTime(timestamp_ms)
    if text.lower() in (Edge.EARLIEST.value, Edge.LATEST.value):
        return Edge(text.lower())
    if not text.startswith("{"):
        raise wrong(name, text, "it must be earliest, latest or JSON")
    return QueueOffsets.of_text(text, what=f"the option {name!r}", lowest=EARLIEST)


def _flag(texts: Mapping[str, str], name: str, *, default: bool) -> bool:
    text = texts.get(name)
    if text is None:
        return default
    if text.strip().lower() not in ("true", "false"):
        raise wrong(name, text, "it must be true or false")
    return text.strip().lower() == "true"


def _wanted(texts: Mapping[str, str]) -> Wanted:
    named = [name for name in ("tags", "sql", "filter") if name in texts]
    if not named:
        return MATCH_ALL
    if len(named) > 1:
        raise BadRequest(f"the options {named[0]!r} and {named[1]!r} exclude each other")
    name, text = named[0], texts[named[0]]
    try:
        if name == "sql":
            return Sql(text)
        if name == "filter":
            if "group" not in texts:
                raise wrong(name, text, "it belongs to a group: also set the option 'group'")
            return Filter.named(text)
        check_expression(text)
    except BadRequest as error:
        raise error if "option" in error.message else wrong(name, text, str(error)) from None
    except Rejected as error:
        raise wrong(name, text, str(error)) from None
    return text.strip() or MATCH_ALL
