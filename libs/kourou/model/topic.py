"""A topic's configuration (RocketMQ `TopicConfig`)."""

from __future__ import annotations

from dataclasses import dataclass

from kourou.model.permission import READ, WRITE, Permission


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """The numbers of write and read queues of a topic at one broker, and its permission."""

    name: str
    read_queue_nums: int = 4
    write_queue_nums: int = 4
    perm: int = int(Permission.READ_WRITE)
    topic_filter_type: str = "SINGLE_TAG"
    topic_sys_flag: int = 0
    order: bool = False

    @property
    def readable(self) -> bool:
        """True if consumers may pull from it."""
        return bool(self.perm & READ)

    @property
    def writable(self) -> bool:
        """True if producers may send to it."""
        return bool(self.perm & WRITE)


@dataclass(frozen=True, slots=True)
class DataVersion:
    """The version of a table; equal only if both fields are equal (RocketMQ `DataVersion`)."""

    timestamp: int = 0
    counter: int = 0
