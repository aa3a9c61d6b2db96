"""The record kernel of this process: the compiled one if available, else the Python one.

KOUROU_KERNEL=python selects the Python kernel; KOUROU_KERNEL=compiled requires the compiled one.
Both produce the same bytes (tests/contract/test_kernel.py).
"""

from __future__ import annotations

import os
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

from kourou.errors import ConfigError
from kourou.protocol import kernel_python
from kourou.protocol.kernel_python import Column
from kourou.protocol.record.layout import Buffer

__all__ = [
    "NAME",
    "append",
    "batch",
    "check_drafts",
    "check_targets",
    "choose",
    "draft",
    "drafts",
    "edit",
    "gather",
    "index_entries",
    "link_slots",
    "load",
    "move",
    "project",
    "queue_units",
    "read",
    "scan",
    "signed_parts",
    "topics",
    "value_groups",
    "values",
    "verify",
]

CHOICES = ("auto", "python", "compiled")


def load(choice: str) -> ModuleType:
    """The kernel module for a value of KOUROU_KERNEL. Raises ConfigError if it is not available."""
    if choice not in CHOICES:
        raise ConfigError(f"KOUROU_KERNEL={choice} is not one of {', '.join(CHOICES)}")
    if choice == "python":
        return kernel_python
    try:
        compiled = import_module("kourou.protocol._kernel")
    except ImportError as error:
        if choice == "auto":
            return kernel_python
        raise ConfigError(
            f"KOUROU_KERNEL=compiled, and the compiled record kernel cannot be loaded: {error}",
            hint="install a C compiler and install Kourou again, or unset KOUROU_KERNEL",
        ) from error
    if compiled.VERSION != kernel_python.VERSION:
        if choice == "auto":
            return kernel_python
        raise ConfigError(
            f"the compiled record kernel has version {compiled.VERSION}, this Kourou needs "
            f"{kernel_python.VERSION}",
            hint="install Kourou again",
        )
    return compiled


_module = load(os.environ.get("KOUROU_KERNEL") or "auto")

NAME = "python" if _module is kernel_python else "compiled"


if TYPE_CHECKING:
    from kourou.protocol.kernel_python import (
        append,
        batch,
        check_drafts,
        check_targets,
        choose,
        draft,
        drafts,
        gather,
        index_entries,
        link_slots,
        queue_units,
        read,
        scan,
        topics,
        value_groups,
        values,
        verify,
    )
else:
    read = _module.read
    scan = _module.scan
    check_drafts = _module.check_drafts
    verify = _module.verify
    check_targets = _module.check_targets
    append = _module.append
    batch = _module.batch
    draft = _module.draft
    drafts = _module.drafts
    topics = _module.topics
    values = _module.values
    value_groups = _module.value_groups
    choose = _module.choose
    gather = _module.gather
    queue_units = _module.queue_units
    index_entries = _module.index_entries
    link_slots = _module.link_slots


def project(records: Column, table: Column) -> tuple[bytearray, bytearray, bytearray, bytearray]:
    """See kernel_python.project.

    The compiled kernel leaves records with labels beyond ASCII, which Java hashes by UTF-16 units,
    to the Python kernel.
    """
    found: tuple[bytearray, bytearray, bytearray, bytearray] | None
    found = _module.project(records, table)
    return kernel_python.project(records, table) if found is None else found


def edit(properties: Buffer, changes: tuple[tuple[bytes, bytes | None], ...]) -> bytes:
    """See kernel_python.edit.

    The compiled kernel leaves unusual properties (beyond ASCII, a name twice, a piece that is not a
    property) to the Python kernel.
    """
    found: bytes | None = _module.edit(properties, changes)
    return kernel_python.edit(properties, changes) if found is None else found


def signed_parts(header: bytes) -> tuple[bytes, bytes, bytes] | None:
    """See kernel_python.signed_parts.

    The compiled kernel leaves unusual headers (spaces, a byte beyond ASCII, an escaped surrogate, a
    field twice, a value that is no text) and those without an access key to the Python kernel.
    """
    found: tuple[bytes, bytes, bytes] | None = _module.signed_parts(header)
    return kernel_python.signed_parts(header) if found is None else found


def move(
    record: Buffer,
    topic: bytes,
    queue_id: int,
    changes: tuple[tuple[bytes, bytes | None], ...],
    cleared: int = 0,
    added: int = 0,
    reconsume_times: int = -1,
    prepared: int = 0,
) -> bytes | None:
    """See kernel_python.move. The compiled kernel leaves the same properties as in `edit` to
    Python.
    """
    given = (record, topic, queue_id, changes, cleared, added, reconsume_times, prepared)
    found: bytes | None = _module.move(*given)
    return kernel_python.move(*given) if found is None else found
