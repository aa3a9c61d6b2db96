"""Two kinds of numbers that must never be confused, as two types."""

from __future__ import annotations

from typing import NewType

Position = NewType("Position", int)
"""A byte position in a commit log (RocketMQ: physical offset)."""

Offset = NewType("Offset", int)
"""The number of a message in one queue, from 0 (RocketMQ: queue offset)."""
