"""What a consumer tells of itself when somebody asks (RocketMQ `ConsumerRunningInfo`).

Lives here: the values. May not live here: their encoding, asking, answering.

State: none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from kourou.client.consume_statistics import ConsumeStatus
from kourou.client.setting import Settings
from kourou.model.queue import MessageQueue
from kourou.model.subscription import Subscription


@dataclass(frozen=True, slots=True)
class QueueInfo:
    """One queue of this member (`ProcessQueueInfo`).

    `cached_*` are of its messages that are here and not finished, -1 where there are none. Times
    are ms since 1970, 0 for never.
    """

    commit_offset: int
    cached_min_offset: int = -1
    cached_max_offset: int = -1
    cached_count: int = 0
    cached_size_bytes: int = 0
    locked: bool = False
    dropped: bool = False
    last_pull_ms: int = 0
    last_consume_ms: int = 0


@dataclass(frozen=True, slots=True)
class RunningInfo:
    """A consumer as it is now. `properties` are its settings as text, by RocketMQ's names."""

    properties: Mapping[str, str]
    subscriptions: tuple[Subscription, ...]
    queues: Mapping[MessageQueue, QueueInfo]
    statuses: Mapping[str, ConsumeStatus]
    started_ms: int


@dataclass(frozen=True, slots=True)
class DirectResult:
    """What a handler said of a message that somebody else handed it (309).

    `result` is CR_SUCCESS, CR_LATER or CR_THROW_EXCEPTION, as RocketMQ spells them.
    """

    result: str
    remark: str
    spent_ms: int
    order: bool = False


def properties_of(settings: Settings) -> dict[str, str]:
    """Settings as text, by the keys they have in files."""
    return {key: _as_text(getattr(settings, item.name)) for key, item in settings.by_key().items()}


def _as_text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Enum):
        return str(value.value)
    if isinstance(value, Mapping):
        return ";".join(f"{name}={expression}" for name, expression in value.items())
    if value is None or isinstance(value, str | int | float):
        return "" if value is None else str(value)
    # A strategy or a function of the application's: its own text may be anything, even a secret.
    return str(getattr(value, "name", type(value).__name__))
