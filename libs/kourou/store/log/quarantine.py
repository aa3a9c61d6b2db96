"""Regions of the log without a readable record, remembered so that each is reported only once.

State: projection. If it is lost, the regions are found again when they are read.

The bytes of a region stay unchanged, for a later repair. Offsets in it are never assigned again: a
unit of the consume queue reserves each one, and reading it reports that the message is corrupt.
"""

from __future__ import annotations

from bisect import bisect_right

import msgspec

from kourou.errors import Corrupt
from kourou.model.limits import OWN_FILE_BYTES_MAX
from kourou.store.disk import Disk, read_whole, write_atomically
from kourou.store.paths import StorePaths


class Region(msgspec.Struct, frozen=True, order=True):
    """Positions from `start` up to, not including, `end`; `reason` is for the operator."""

    start: int
    end: int
    reason: str = ""


class _File(msgspec.Struct):
    regions: list[Region]


class Quarantine:
    """The known regions, sorted and disjoint."""

    __slots__ = ("_starts", "regions")

    def __init__(self, regions: list[Region]) -> None:
        self.regions: list[Region] = []
        self._starts: list[int] = []
        self.add(regions)

    def __len__(self) -> int:
        return len(self.regions)

    def add(self, regions: list[Region]) -> None:
        """Add these regions; one inside a known region changes nothing."""
        merged: list[Region] = []
        for region in sorted(self.regions + regions, key=lambda region: region.start):
            if merged and region.start < merged[-1].end:
                last = merged[-1]
                merged[-1] = Region(last.start, max(last.end, region.end), last.reason)
            else:
                merged.append(region)
        self.regions = merged
        self._starts = [region.start for region in merged]

    def at(self, position: int) -> Region | None:
        """The region that holds `position`."""
        index = bisect_right(self._starts, position) - 1
        if index >= 0 and position < self.regions[index].end:
            return self.regions[index]
        return None

    def next_start(self, position: int) -> int | None:
        """The start of the first region at or after `position`."""
        index = bisect_right(self._starts, position - 1)
        return self._starts[index] if index < len(self._starts) else None

    def remove(self, start: int, end: int) -> None:
        """The bytes from `start` to `end` are readable again; the rest of the regions stays."""
        kept: list[Region] = []
        for region in self.regions:
            if region.start < start:
                kept.append(Region(region.start, min(region.end, start), region.reason))
            if region.end > end:
                kept.append(Region(max(region.start, end), region.end, region.reason))
        self.regions = kept
        self._starts = [region.start for region in kept]

    def forget_above(self, position: int) -> None:
        """Drop regions that end above `position`: another program rewrote them; they are checked
        again.
        """
        self.regions = [region for region in self.regions if region.end <= position]
        self._starts = [region.start for region in self.regions]

    def forget_below(self, position: int) -> None:
        """The log now starts at `position`."""
        self.regions = [region for region in self.regions if region.end > position]
        self._starts = [region.start for region in self.regions]


def load_quarantine(disk: Disk, paths: StorePaths) -> Quarantine:
    """The known regions. Raises Corrupt if the file cannot be read."""
    data = read_whole(disk, paths.quarantine, OWN_FILE_BYTES_MAX)
    if data is None:
        return Quarantine([])
    try:
        return Quarantine(msgspec.json.decode(data, type=_File).regions)
    except msgspec.DecodeError as error:
        raise Corrupt(
            f"{paths.quarantine} cannot be read: {error}",
            hint="remove it; damaged regions are found again",
        ) from error


def save_quarantine(disk: Disk, paths: StorePaths, quarantine: Quarantine) -> None:
    """Write the regions to disk, durably. Raises OSError."""
    write_atomically(disk, paths.quarantine, msgspec.json.encode(_File(quarantine.regions)) + b"\n")
