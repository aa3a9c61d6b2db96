"""The state before the first position of this broker's log, for a replica that starts there."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from typing import Any

from kourou.engine.admin.history import BeginningFound, BeginningQuestion
from kourou.engine.admin.log_bootstrap import next_control_offset, queue_ends_of
from kourou.engine.control import ControlState
from kourou.engine.effects import AskHistory, Effect
from kourou.engine.policy import BrokerPolicy
from kourou.engine.ports import StoreView
from kourou.engine.retention.retention_handler import RetentionHandler
from kourou.errors import Code, Rejected, Throttled
from kourou.model.limits import FETCH_BYTES_MAX, HISTORY_WAIT_MS_MAX
from kourou.protocol.messages.replication import GetLogBeginning, GetLogBeginningResponse
from kourou.protocol.request import Request
from kourou.runtime.core import Received, Reply


class BootstrapHandler:
    """Handles one request."""

    def __init__(
        self,
        policy: BrokerPolicy,
        control: ControlState,
        view: StoreView,
        retention: RetentionHandler,
        segment_size: int,
    ) -> None:
        self._policy = policy
        self._control = control
        self._view = view
        self._retention = retention
        self._segment_size = segment_size

    def handlers(self) -> Mapping[type[Request], Callable[[int, Received, Any], list[Effect]]]:
        """Return the handler of each request type."""
        return {GetLogBeginning: self.beginning}

    def beginning(self, _now_ms: int, received: Received, request: GetLogBeginning) -> list[Effect]:
        """Return what a replica needs to start its log where this log starts (30048)."""
        policy = self._policy
        if request.group != policy.broker_name:
            raise Rejected(
                f"this is {policy.broker_name}, not {request.group}", code=Code.NO_PERMISSION
            )
        if self._retention.deleting:
            # Deletion trims queue after queue, so the queue ends would be inconsistent.
            raise Throttled("the start of the log is being deleted; retry")
        first, _ = self._view.log_range()
        ends = queue_ends_of(self._view)
        question = BeginningQuestion(
            policy.cluster_name,
            policy.broker_name,
            self._segment_size,
            first,
            ends,
            tuple(pair for pair in self._control.replicas.epochs if pair[1] < first),
        )
        return [AskHistory(received, question, next_control_offset(ends), HISTORY_WAIT_MS_MAX)]


def tell_beginning(received: Received, found: BeginningFound) -> list[Effect]:
    """Reply with the piece that was requested. Raises Rejected beyond the end."""
    request, body = received.request, found.body
    assert isinstance(request, GetLogBeginning), request
    if request.from_byte >= len(body):
        raise Rejected(
            f"the start of the log has {len(body)} bytes, so there are none at byte "
            f"{request.from_byte}"
        )
    header = GetLogBeginningResponse(position=found.position, size=len(body), crc=zlib.crc32(body))
    piece = memoryview(body)[request.from_byte : request.from_byte + FETCH_BYTES_MAX]
    return [Reply(received.to, header=header, body=(piece,))]
