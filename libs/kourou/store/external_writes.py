"""Signs that another program wrote to this store since Kourou last did, found in its small files.

A RocketMQ broker that ran on this store does not touch `<root>/kourou/`. It leaves a checkpoint
with its own store times, and tables whose hashes Kourou never wrote. What follows from a sign
depends on how the store was closed: see `_another_wrote` in kourou.store.recovery.recover.

Invariant:  a checkpoint of Kourou never has a later time than its recovery point, because the point
            is synced first
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kourou.store.checkpoint import load_checkpoint
from kourou.store.config.config_files import ConfigFiles
from kourou.store.disk import Disk
from kourou.store.paths import StorePaths
from kourou.store.recovery.recovery_point import load_recovery_points


@dataclass(frozen=True, slots=True)
class Signs:
    """What small files show, strongest sign first.

    `newer_checkpoint`: the checkpoint has a later store time than Kourou ever wrote; this holds
    even after a crash of Kourou. `other_checkpoint`: it has a store time that Kourou did not write;
    valid for a store that was closed. `tables`: names of tables that another program wrote or
    removed.
    """

    newer_checkpoint: bool = False
    other_checkpoint: bool = False
    tables: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        checkpoint = ["checkpoint"] if self.other_checkpoint else []
        return ", ".join(checkpoint + self.tables)


def look_for_signs(disk: Disk, paths: StorePaths) -> Signs:
    """The signs that another program wrote to a store that Kourou wrote to before."""
    points = load_recovery_points(disk, paths.recovery_point)
    found = load_checkpoint(disk, paths.checkpoint)
    ours = {0, *(point.store_ms for point in points)}
    times = {found.log_ms, found.queues_ms}
    return Signs(
        bool(points) and max(times) > max(ours),
        bool(points) and not times <= ours,
        ConfigFiles(disk, paths).foreign_changes(),
    )
