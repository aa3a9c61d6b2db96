"""The options of `df.write.format("kourou")`, validated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

from kourou.errors import BadRequest
from kourou.filtering.tags import check_tag
from kourou.model.limits import BATCH_NUMBER_MAX, DELAY_LEVELS_MAX
from kourou.model.names import check_topic
from kourou.model.transaction import check_query
from kourou_spark_etl.source.options import checked, known_options, name_servers, number, wrong

W = TypeVar("W", bound=StrEnum)

SEND_TIMEOUT_MS = 60_000
COMMIT_TIMEOUT_MS = 120_000
_LONGEST_MS = 3_600_000

OF_SPARK = frozenset(
    {"path", "checkpointlocation", "queryname", "outputmode", "trigger", "mergeschema"}
)
"""Options of Spark itself, which it passes to the source."""


class Semantics(StrEnum):
    """The effect of a repeated write on the topic."""

    EXACTLY_ONCE = "exactly-once"
    AT_LEAST_ONCE = "at-least-once"


class QueueBy(StrEnum):
    """How a row without a queue is assigned one."""

    TURNS = "turns"
    KEY = "key"


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """The options of a write. Empty texts: not set.

    `app_id` and `app_version` name a batch write as (query, batch), so that it counts once however
    often it is repeated. `coordinator` names the broker that decides about a new query.
    """

    name_servers: str
    topic: str
    tags: str
    key: str
    delay_level: int
    queue_by: QueueBy
    semantics: Semantics
    app_id: str
    app_version: int
    coordinator: str
    send_timeout_ms: int
    commit_timeout_ms: int

    @property
    def exactly_once(self) -> bool:
        """Whether rows are stored exactly once, even if tasks or batches are repeated."""
        return self.semantics is Semantics.EXACTLY_ONCE


NAMES: tuple[str, ...] = (
    "nameServer",
    "namesrvAddr",
    "topic",
    "tags",
    "key",
    "delayLevel",
    "queueBy",
    "semantics",
    "txnAppId",
    "txnVersion",
    "coordinator",
    "sendTimeoutMs",
    "commitTimeoutMs",
)
"""Every option of a write."""


def write_options(
    given: Mapping[str, str], environment: Mapping[str, str] | None = None
) -> WriteOptions:
    """Parse the options. Raises BadRequest, which names the unknown, invalid or missing option."""
    texts = known_options(given, NAMES, "writing", OF_SPARK)
    semantics = _word(texts, "semantics", Semantics, Semantics.EXACTLY_ONCE)
    app_id, app_version = _transaction(texts, semantics)
    return WriteOptions(
        name_servers=name_servers(texts, environment, "host:port;host:port"),
        topic=checked(texts, "topic", check_topic),
        tags=checked(texts, "tags", check_tag),
        key=texts.get("key", ""),
        delay_level=number(texts, "delayLevel", 0, DELAY_LEVELS_MAX) or 0,
        queue_by=_word(texts, "queueBy", QueueBy, QueueBy.TURNS),
        semantics=semantics,
        app_id=app_id,
        app_version=app_version,
        coordinator=texts.get("coordinator", ""),
        send_timeout_ms=number(texts, "sendTimeoutMs", 1, _LONGEST_MS) or SEND_TIMEOUT_MS,
        commit_timeout_ms=number(texts, "commitTimeoutMs", 1, _LONGEST_MS) or COMMIT_TIMEOUT_MS,
    )


def _transaction(texts: Mapping[str, str], semantics: Semantics) -> tuple[str, int]:
    if ("txnAppId" in texts) != ("txnVersion" in texts):
        raise BadRequest("the options 'txnAppId' and 'txnVersion' require each other")
    if "txnAppId" not in texts:
        return "", 0
    if semantics is not Semantics.EXACTLY_ONCE:
        raise wrong("txnAppId", texts["txnAppId"], "it requires semantics=exactly-once")
    version = number(texts, "txnVersion", 0, BATCH_NUMBER_MAX) or 0
    return checked(texts, "txnAppId", check_query), version


def _word(texts: Mapping[str, str], name: str, kind: type[W], default: W) -> W:
    text = texts.get(name)
    if text is None:
        return default
    try:
        return kind(text.strip().lower())
    except ValueError:
        raise wrong(name, text, f"it must be {' or '.join(kind)}") from None
