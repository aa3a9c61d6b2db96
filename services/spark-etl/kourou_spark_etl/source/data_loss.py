"""Handles messages that a query should read but that no longer exist."""

from __future__ import annotations

import logging

from kourou.errors import Rejected

_log = logging.getLogger("kourou.spark")


class DataLoss(Rejected):
    """Messages were deleted or damaged before the query read them.

    Do: Check retention and the broker's disk; failOnDataLoss=false skips the missing messages.
    """


def lost(message: str, *, fail: bool) -> None:
    """Raise DataLoss if `fail`, otherwise log a warning."""
    if fail:
        raise DataLoss(
            message, hint="to continue with the remaining messages, set failOnDataLoss=false"
        )
    _log.warning("%s; reading continues with the remaining messages", message)
