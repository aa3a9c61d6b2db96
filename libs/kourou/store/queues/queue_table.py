"""All queues of a broker's log; their files share one bound on open descriptors.

State: projection. The whole directory can be deleted and is rebuilt from the commit log.

Loading, appending and truncating belong to the one thread that writes; any thread may call
`flush_all`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from kourou.errors import BadRequest
from kourou.model.limits import QUEUE_FILE_UNITS
from kourou.store.disk import Disk
from kourou.store.open_files import OpenFiles, PooledFile, affordable_files
from kourou.store.paths import StorePaths
from kourou.store.queues.consume_queue import ConsumeQueue


class ConsumeQueues:
    """The queues below one `consumequeue` directory."""

    def __init__(
        self,
        disk: Disk,
        paths: StorePaths,
        *,
        file_units: int = QUEUE_FILE_UNITS,
        open_files_max: int | None = None,
    ) -> None:
        self._disk = disk
        self._paths = paths
        self._file_units = file_units
        self._pool = OpenFiles(disk, open_files_max or affordable_files())
        self._topics: dict[str, dict[int, ConsumeQueue]] = {}

    def __len__(self) -> int:
        return sum(len(queues) for queues in self._topics.values())

    def __iter__(self) -> Iterator[ConsumeQueue]:
        for queues in self._topics.values():
            yield from queues.values()

    # -- one queue --------------------------------------------------------------------------------

    def get(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """The queue, or None if nothing was ever written to it."""
        queues = self._topics.get(topic)
        return None if queues is None else queues.get(queue_id)

    def get_or_create(self, topic: str, queue_id: int) -> ConsumeQueue:
        """The queue, created if necessary; its first file is created with its first unit.

        Raises BadRequest if `topic` or `queue_id` cannot name a directory.
        """
        queues = self._topics.get(topic)
        if queues is not None:
            queue = queues.get(queue_id)
            if queue is not None:
                return queue
        queue = self._new(topic, queue_id)
        self._topics.setdefault(topic, {})[queue_id] = queue
        return queue

    def _new(self, topic: str, queue_id: int) -> ConsumeQueue:
        return ConsumeQueue(topic, queue_id, self._paths, self._pool, self._file_units)

    def topics(self) -> list[str]:
        """The topics that have queues."""
        return list(self._topics)

    def queues_of(self, topic: str) -> list[ConsumeQueue]:
        """The queues of a topic."""
        return list(self._topics.get(topic, {}).values())

    def range_of(self, topic: str, queue_id: int) -> tuple[int, int] | None:
        """Minimum offset and the next one to be written; None for a queue never written."""
        queue = self.get(topic, queue_id)
        return None if queue is None else (queue.min_offset, queue.max_offset)

    # -- all queues -------------------------------------------------------------------------------

    def load(self, trusted_below: int | None = None) -> list[str]:
        """Adopt the files on disk; returns what is wrong, one sentence per queue.

        `trusted_below` None: the store was closed cleanly. Otherwise every unit of a record at or
        above that log position is wiped, and those records must be dispatched again. If anything is
        wrong, the caller must `wipe` and dispatch the whole log. Raises ConfigError if the files
        were written with another length.
        """
        problems: list[str] = []
        self._topics = {}
        root = self._paths.consume_queue
        for topic in self._disk.list_dir(root):
            queues: dict[int, ConsumeQueue] = {}
            for name in self._disk.list_dir(root / topic):
                if not (name.isdecimal() and name.isascii()):
                    continue
                try:
                    queue = self._new(topic, int(name))
                except BadRequest as error:
                    problems.append(f"{root / topic}: {error}")
                    continue
                problem = queue.load(self._disk.list_dir(root / topic / name), trusted_below)
                if problem:
                    problems.append(problem)
                if queue.file_count:
                    queues[queue.queue_id] = queue
            if queues:
                self._topics[topic] = queues
        return problems

    def wipe(self) -> None:
        """Delete every file of every queue, to rebuild them from the log."""
        self._topics = {}
        self._pool.close()
        self._pool = OpenFiles(self._disk, self._pool.count_max)
        self._disk.clear_dir(self._paths.consume_queue)
        # Synced now, or a power loss could bring old units back among the new ones.
        self._disk.sync_dir(self._paths.consume_queue)

    def offset_total(self) -> int:
        """The sum of all maximum offsets: it is smaller if a queue lost files."""
        return sum(queue.max_offset for queue in self)

    def end_position(self) -> int:
        """The end of the last record that any queue refers to; 0 if there is none."""
        return max((queue.end_position for queue in self), default=0)

    def truncate(self, position: int) -> int:
        """Remove the units of records at or above `position`; returns how many.

        A queue without remaining files is dropped, as if it had never been written to.
        """
        count = sum(queue.truncate(position) for queue in self)
        if count:
            kept = {
                topic: {queue_id: queue for queue_id, queue in queues.items() if queue.file_count}
                for topic, queues in self._topics.items()
            }
            self._topics = {topic: queues for topic, queues in kept.items() if queues}
        return count

    def correct_min_offsets(self, log_start: int) -> None:
        """Raise every minimum to the first message that a log starting at `log_start` still has."""
        for queue in self:
            queue.correct_min_offset(log_start)

    def remove_detached(self, file: PooledFile) -> None:
        """Remove a file that `detach_before` returned, durably; callable from any thread.

        Callers remove files one by one, oldest first, so that a power loss leaves no hole. Raises
        OSError.
        """
        self._pool.remove(file)
        with suppress(FileNotFoundError):  # the topic was deleted in the meantime
            self._disk.sync_dir(file.path.parent)

    def remove_topic(self, topic: str) -> int:
        """Delete the queues of a deleted topic; returns how many.

        The log keeps its records until they expire, so a rebuild must know that the topic is gone.
        """
        queues = self._topics.pop(topic, {})
        for queue in queues.values():
            queue.remove()
        self._disk.remove_tree(self._paths.consume_queue / topic)
        return len(queues)

    def flush_all(self) -> int:
        """Make everything appended survive a power loss; returns the number of files synced.

        Thread-safe. Raises StoreFaulted if the disk fails, and on every later call.
        """
        return self._pool.flush()

    def close(self) -> None:
        """Close every file; nothing is flushed."""
        self._pool.close()

    def statistics(self) -> dict[str, int]:
        """A snapshot for operators and metrics."""
        return {
            "topics": len(self._topics),
            "queues": len(self),
            "files": sum(queue.file_count for queue in self),
            "open_files": self._pool.open_count,
            "dirty_files": self._pool.dirty_count,
            "files_opened": self._pool.opened,
            "files_evicted": self._pool.evicted,
        }
