"""What the members of the demo's group were given, written down so that a kill loses none of it.

A member writes a delivery down before it acknowledges it, straight into the page cache, which
outlives the process. So a message may be in a ledger twice, but what was acknowledged is in one.

State: soft; the files go with the demo's folder.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Self

import numpy as np
import numpy.typing as npt

ROW_BYTES = 4
Rows = npt.NDArray[np.uint32]


class LedgerWriter:
    """Appends to one member's ledger."""

    __slots__ = ("_descriptor",)

    def __init__(self, path: Path) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        self._descriptor = os.open(path, flags, 0o644)

    def add(self, rows: Sequence[int]) -> None:
        """Write deliveries down, all or none of them."""
        os.write(self._descriptor, np.array(rows, dtype="<u4").tobytes())

    def close(self) -> None:
        """No more deliveries."""
        os.close(self._descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Ledger:
    """Reads one member's ledger while it may still grow."""

    __slots__ = ("path",)

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def count(self) -> int:
        """Deliveries so far."""
        return self.path.stat().st_size // ROW_BYTES if self.path.exists() else 0

    def rows(self, start: int = 0) -> Rows:
        """The deliveries from number `start` on, in their order."""
        if self.count <= start:
            return np.empty(0, dtype=np.uint32)
        count = self.count - start
        found: Rows = np.fromfile(self.path, dtype="<u4", offset=start * ROW_BYTES, count=count)
        return found


def distinct(parts: Sequence[Rows]) -> Rows:
    """The rows that occur in any of the parts, each once, sorted."""
    return np.unique(np.concatenate([np.empty(0, dtype=np.uint32), *parts]))
