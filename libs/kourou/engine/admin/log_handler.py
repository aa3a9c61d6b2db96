"""Serves pieces of the log to replicas that lag far behind, and to backups.

Only committed bytes are served, because they are the same on every replica and never truncated.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kourou.engine.effects import Effect
from kourou.engine.policy import BrokerPolicy
from kourou.engine.ports import StoreView
from kourou.engine.sends.confirmations import Confirmations
from kourou.errors import Code, Corrupt, Rejected
from kourou.model.limits import DAMAGE_LENGTH_MAX, FETCH_BYTES_MAX
from kourou.protocol.messages.replication import FetchLog, FetchLogResponse
from kourou.protocol.request import Request
from kourou.replication.epochs import Epochs
from kourou.runtime.core import Buffer, Received, Reply


class LogHandler:
    """Handles one request.

    `epochs` returns the history of the log, at least up to the committed position. `group` is the
    name of the Raft group, which may differ from the broker's; "" if there is none.
    """

    def __init__(
        self,
        policy: BrokerPolicy,
        view: StoreView,
        confirmations: Confirmations,
        epochs: Callable[[], Epochs],
        group: str = "",
    ) -> None:
        self._view = view
        self._confirmations = confirmations
        self._epochs = epochs
        self._names = {policy.broker_name, group or policy.broker_name}

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
        epochs, confirmed = self._epochs(), self._confirmations.confirmed
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
