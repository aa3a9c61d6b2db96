"""The log for replicas and backups: its pieces, and the state before its first position.

State: none of its own.

Only committed bytes are served, because they are the same on every replica and never truncated.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from typing import Any

from kourou.engine.admin.history import BeginningFound, BeginningQuestion
from kourou.engine.admin.log_bootstrap import next_control_offset, queue_ends_of
from kourou.engine.context import BrokerContext
from kourou.engine.effects import AskHistory, Effect
from kourou.engine.retention import RetentionHandler
from kourou.engine.roles.role import Role
from kourou.errors import Code, Corrupt, Rejected, Throttled
from kourou.model.limits import DAMAGE_LENGTH_MAX, FETCH_BYTES_MAX, HISTORY_WAIT_MS_MAX
from kourou.protocol.messages.replication import (
    FetchLog,
    FetchLogResponse,
    GetLogBeginning,
    GetLogBeginningResponse,
)
from kourou.protocol.request import Request
from kourou.runtime import Buffer, Received, Reply


class LogHandler:
    """Handles one request; the role has the epochs of the log, up to the committed position."""

    def __init__(self, context: BrokerContext, role: Role) -> None:
        self._view = context.view
        self._confirmations = context.confirmations
        self._role = role
        self._names = {context.policy.broker_name, role.group}

    def handlers(self) -> Mapping[type[Request], Callable[[int, Received, Any], list[Effect]]]:
        """Return the handler of each request type."""
        return {FetchLog: self.fetch}

    def fetch(self, _now_ms: int, received: Received, request: FetchLog) -> list[Effect]:
        """Reply with committed bytes from a position on (30047); none if there are none.

        Raises Rejected for a position where no record begins, and Corrupt for damaged bytes, unless
        the request includes those.
        """
        if request.group not in self._names:
            ours = " and ".join(sorted(self._names))
            raise Rejected(f"this is {ours}, not {request.group}", code=Code.NO_PERMISSION)
        epochs, confirmed = self._role.epochs, self._confirmations.confirmed
        first, _ = self._view.log_range()
        position = end = max(request.position, first)
        previous = data_epoch = epochs.epoch_at(min(position, epochs.end))
        body: tuple[Buffer, ...] = ()
        damage = ""
        if position == request.position and position < confirmed:
            run = epochs.run_from(position)
            limit, size = min(run.end, confirmed), min(request.max_bytes, FETCH_BYTES_MAX)
            chunk = self._view.read_chunk(position, limit, size)
            if chunk.damage and not request.damaged:
                raise Corrupt(f"the log is damaged from {position} to {chunk.end}: {chunk.damage}")
            end, data_epoch, damage = chunk.end, run.epoch, chunk.damage[:DAMAGE_LENGTH_MAX]
            body = (chunk.data,) if len(chunk.data) else ()
        header = FetchLogResponse(
            position=position,
            end=end,
            previous_epoch=previous,
            data_epoch=data_epoch,
            confirmed=confirmed,
            first_position=first,
            damage=damage,
        )
        return [Reply(received.to, header=header, body=body)]


class BootstrapHandler:
    """Handles one request."""

    def __init__(self, context: BrokerContext, retention: RetentionHandler) -> None:
        self._policy = context.policy
        self._control = context.control
        self._view = context.view
        self._retention = retention
        self._segment_size = context.segment_size

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


def reply_beginning(received: Received, found: BeginningFound) -> list[Effect]:
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
