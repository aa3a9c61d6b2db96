"""Files in which consumers record deliveries, so that a kill loses none.

A consumer records a delivery before it acknowledges the message, directly into the page cache,
which survives the process. A message may therefore be recorded twice, but every acknowledged one is
recorded.

State: soft; the files are removed with the demo's folder.
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
    """Appends to the ledger of one consumer."""

    __slots__ = ("_descriptor",)

    def __init__(self, path: Path) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        self._descriptor = os.open(path, flags, 0o644)

    def add(self, rows: Sequence[int]) -> None:
        """Record deliveries, all or none of them."""
        os.write(self._descriptor, np.array(rows, dtype="<u4").tobytes())

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Ledger:
    """Reads the ledger of one consumer while it may still grow."""

    __slots__ = ("path",)

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def count(self) -> int:
        """Number of deliveries so far."""
        return self.path.stat().st_size // ROW_BYTES if self.path.exists() else 0

    def rows(self, start: int = 0) -> Rows:
        """The deliveries from index `start` on, in order."""
        if self.count <= start:
            return np.empty(0, dtype=np.uint32)
        count = self.count - start
        found: Rows = np.fromfile(self.path, dtype="<u4", offset=start * ROW_BYTES, count=count)
        return found


def distinct(parts: Sequence[Rows]) -> Rows:
    """The rows that occur in any of the parts, without duplicates, sorted."""
    return np.unique(np.concatenate([np.empty(0, dtype=np.uint32), *parts]))
