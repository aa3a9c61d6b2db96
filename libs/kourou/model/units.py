"""Two numbers that must never be mixed up, so they are two types."""

from __future__ import annotations

from typing import NewType

Position = NewType("Position", int)
"""A byte place in a commit log (RocketMQ: physical offset)."""

Offset = NewType("Offset", int)
"""The ordinal of a message in one queue, from 0 (RocketMQ: queue offset)."""
