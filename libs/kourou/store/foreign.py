"""Did somebody else write to this store since we last did? What its small files say of that.

A RocketMQ broker that ran on our store knows nothing of `<root>/kourou/`. It leaves a checkpoint
with its own store times and tables whose hashes we never wrote. What follows from a sign depends on
how the store was left: see `_another_wrote` in kourou.store.recovery.

Invariant:  a checkpoint of ours never names a later time than a recovery point does, since the
            point is synced before it
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
    """What small files say, strongest first.

    `newer_checkpoint`: it names a later store time than we ever wrote there; that survives a crash
    of ours. `other_checkpoint`: it names one that is not ours; true of a store that was closed.
    `tables`: names of tables that another wrote or removed.
    """

    newer_checkpoint: bool = False
    other_checkpoint: bool = False
    tables: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        checkpoint = ["checkpoint"] if self.other_checkpoint else []
        return ", ".join(checkpoint + self.tables)


def look_for_signs(disk: Disk, paths: StorePaths) -> Signs:
    """What in a store that we wrote to last does not look like our work."""
    points = load_recovery_points(disk, paths.recovery_point)
    found = load_checkpoint(disk, paths.checkpoint)
    ours = {0, *(point.store_ms for point in points)}
    times = {found.log_ms, found.queues_ms}
    return Signs(
        bool(points) and max(times) > max(ours),
        bool(points) and not times <= ours,
        ConfigFiles(disk, paths).foreign_changes(),
    )
