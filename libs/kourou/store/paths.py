"""The names of all files of a store: RocketMQ 4.9's names, and Kourou's own.

    <root>/commitlog/00000000000000000000     records; the name is the position of the first byte
    <root>/consumequeue/<topic>/<queue ID>/   units; the name is the byte offset in the queue
    <root>/index/yyyyMMddHHmmssSSS            the key index
    <root>/config/*.json                      tables that RocketMQ reads and writes
    <root>/checkpoint  abort  lock            RocketMQ's, unchanged
    <file>.lock                               the lock of a file outside of the root
    <root>/kourou/                            Kourou's own files; RocketMQ never reads them

No other module builds such a name.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from kourou.errors import BadRequest
from kourou.model.names import check_topic

NAME_DIGITS = 20


def file_name(start: int) -> str:
    """The name of a log segment or queue file that starts at byte `start`."""
    return f"{start:0{NAME_DIGITS}d}"


def start_of(name: str) -> int | None:
    """The byte at which a file of this name starts; None if the name has another form."""
    if len(name) == NAME_DIGITS and name.isascii() and name.isdigit():
        return int(name)
    return None


@dataclass(frozen=True, slots=True)
class StorePaths:
    """The paths of one store."""

    root: Path
    commit_log: Path
    consume_queue: Path
    index: Path
    config: Path
    checkpoint: Path
    abort: Path
    lock: Path
    kourou: Path
    events: Path

    @classmethod
    def under(
        cls,
        root: Path,
        *,
        commit_log: Path | None = None,
        consume_queue: Path | None = None,
        index: Path | None = None,
        checkpoint: Path | None = None,
        abort: Path | None = None,
        events: Path | None = None,
    ) -> StorePaths:
        """RocketMQ's layout below `root` (storePathRootDir); a path given replaces its default."""
        return cls(
            root=root,
            commit_log=commit_log or root / "commitlog",
            consume_queue=consume_queue or root / "consumequeue",
            index=index or root / "index",
            config=root / "config",
            checkpoint=checkpoint or root / "checkpoint",
            abort=abort or root / "abort",
            lock=root / "lock",
            kourou=root / "kourou",
            events=events or root / "kourou" / "events.db",
        )

    @property
    def directories(self) -> tuple[Path, ...]:
        """Every directory that a store needs, parents first."""
        needed = (
            self.root,
            self.commit_log,
            self.consume_queue,
            self.index,
            self.config,
            self.kourou,
            self.checkpoint.parent,
            self.abort.parent,
        )
        return tuple(dict.fromkeys(needed))

    @property
    def format_version(self) -> Path:
        """The version of Kourou's own files."""
        return self.kourou / "format.json"

    @property
    def boot(self) -> Path:
        """When the machine was started on which the store was opened last (`Disk.boot_id`)."""
        return self.kourou / "boot"

    @property
    def recovery_point(self) -> Path:
        """The positions up to which the log is flushed and projected."""
        return self.kourou / "recovery"

    @property
    def quarantine(self) -> Path:
        """Regions of the log without a readable record."""
        return self.kourou / "quarantine.json"

    @property
    def last_fault(self) -> Path:
        """Why a process last failed on this store."""
        return self.kourou / "last-fault"

    @property
    def ages(self) -> Path:
        """How long ago each segment was last written to."""
        return self.kourou / "ages.json"

    @property
    def queue_ends(self) -> Path:
        """The ends of the queues when old segments were last deleted."""
        return self.kourou / "queue-ends.json"

    @property
    def filters(self) -> Path:
        """The filters of consumer groups, in case their events are lost."""
        return self.kourou / "filters.json"

    @property
    def reserve(self) -> Path:
        """Space that is freed when the disk is almost full."""
        return self.kourou / "reserve"

    @property
    def epochs(self) -> Path:
        """The epoch of each part of the log."""
        return self.kourou / "epochs"

    @property
    def vote(self) -> Path:
        """The replica that this one voted for last."""
        return self.kourou / "vote"

    @property
    def cut(self) -> Path:
        """The position to truncate the log at, at the next start."""
        return self.kourou / "cut"

    @property
    def beginning(self) -> Path:
        """The position where the log restarts at the next start, and what preceded it."""
        return self.kourou / "beginning"

    @property
    def uncopied(self) -> Path:
        """Exists while a follower that began empty has not had all of its leader's log."""
        return self.kourou / "uncopied"

    @property
    def diverged(self) -> Path:
        """Data truncated from the log, for the operator."""
        return self.kourou / "diverged"

    def segment(self, start: int) -> Path:
        """The log segment that starts at position `start`."""
        return self.commit_log / file_name(start)

    def queue(self, topic: str, queue_id: int) -> Path:
        """The directory of one queue. Raises BadRequest for a name that may not become a path."""
        check_topic(topic)
        if queue_id < 0:
            raise BadRequest(f"queue id {queue_id} is negative")
        directory = self.consume_queue / topic / str(queue_id)
        # The characters allowed in a topic cannot leave the directory; this is a second check.
        assert directory.is_relative_to(self.consume_queue)
        return directory
