"""A topic's configuration (RocketMQ `TopicConfig`, fact sheet §3.6)."""

from __future__ import annotations

from dataclasses import dataclass

from kourou.model.permission import READ, WRITE, Permission


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """How many queues take writes and reads at one broker, and who may use them."""

    name: str
    read_queue_nums: int = 4
    write_queue_nums: int = 4
    perm: int = int(Permission.READ_WRITE)
    topic_filter_type: str = "SINGLE_TAG"
    topic_sys_flag: int = 0
    order: bool = False

    @property
    def readable(self) -> bool:
        """May consumers pull from it?"""
        return bool(self.perm & READ)

    @property
    def writable(self) -> bool:
        """May producers send to it?"""
        return bool(self.perm & WRITE)


@dataclass(frozen=True, slots=True)
class DataVersion:
    """Tells two states of a table apart; equal only if both fields are (RocketMQ `DataVersion`)."""

    timestamp: int = 0
    counter: int = 0
