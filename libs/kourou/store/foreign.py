"""Did somebody else write to this store since we last did? What its small files say of that.

Lives here: comparing RocketMQ's checkpoint and `config/*.json` with what we wrote last.
May not live here: what the log says (kourou.store.recovery), importing what is different.

State: none.

A RocketMQ broker that ran on our store knows nothing of `<root>/kourou/`. It leaves a checkpoint
with its own store times and tables whose hashes we never wrote. A sign alone decides nothing: a
person may have edited a table.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kourou.store.checkpoint import load_checkpoint
from kourou.store.config_files import ConfigFiles
from kourou.store.disk import Disk
from kourou.store.paths import StorePaths
from kourou.store.recovery_point import load_recovery_points


@dataclass(frozen=True, slots=True)
class Signs:
    """`newer_checkpoint`: it names a later store time than we ever wrote there."""

    newer_checkpoint: bool = False
    tables: list[str] = field(default_factory=list)

    def __bool__(self) -> bool:
        return self.newer_checkpoint or bool(self.tables)

    def __str__(self) -> str:
        checkpoint = ["checkpoint"] if self.newer_checkpoint else []
        return ", ".join(checkpoint + self.tables)


def look_for_signs(disk: Disk, paths: StorePaths) -> Signs:
    """What in a store that we wrote to last does not look like our work."""
    points = load_recovery_points(disk, paths.recovery_point)
    found = load_checkpoint(disk, paths.checkpoint)
    ours_ms = max((point.store_ms for point in points), default=0)
    newer = bool(points) and max(found.log_ms, found.queues_ms) > ours_ms
    return Signs(newer, ConfigFiles(disk, paths).foreign_changes())
