"""Headers of queue locks for orderly consumption; the bodies have the data."""

from __future__ import annotations

from typing import ClassVar

from kourou.protocol.request import Request


class LockBatchMq(Request, kw_only=True, frozen=True):
    """LOCK_BATCH_MQ (41): lock queues for one client; the reply has the queues that it got."""

    code: ClassVar[int] = 41


class UnlockBatchMq(Request, kw_only=True, frozen=True):
    """UNLOCK_BATCH_MQ (42): release locked queues."""

    code: ClassVar[int] = 42
