"""Finding stored messages: by position, by key, by unique key.

Lives here: the answers of QUERY_MESSAGE (12) and VIEW_MESSAGE_BY_ID (33).
May not live here: the key index (kourou.store.key_index).

State: none. What is not confirmed yet is not found.
"""

from __future__ import annotations

from kourou.engine.confirmations import Confirmations
from kourou.engine.effects import Effect, Reply
from kourou.engine.inputs import Received
from kourou.engine.policy import BrokerPolicy
from kourou.engine.ports import StoreView
from kourou.errors import BadRequest, Code, Rejected
from kourou.model.limits import QUERY_MESSAGES_MAX
from kourou.protocol.messages.queries import QueryMessage, QueryMessageResponse, ViewMessageById
from kourou.protocol.record_layout import parts_of


class QueryDesk:
    """Answers searches."""

    def __init__(self, view: StoreView, confirmations: Confirmations, policy: BrokerPolicy) -> None:
        self._view = view
        self._confirmations = confirmations
        self._policy = policy

    def view(self, _now_ms: int, received: Received, request: ViewMessageById) -> list[Effect]:
        """The record at a log position (33)."""
        if not 0 <= request.offset < self._confirmations.confirmed:
            raise Rejected(f"no message lies at position {request.offset} of this broker's log")
        return [Reply(received.to, body=(self._view.record_at(request.offset),))]

    def by_key(self, _now_ms: int, received: Received, request: QueryMessage) -> list[Effect]:
        """Messages by key or unique key (12).

        Beyond RocketMQ, which returns whatever has the same hash, records of other keys are left
        out at the broker already: the seeds let the client compare, and ours does so too.
        """
        wanted = self._policy.query_max if request.unique_key_query else request.max_num
        if wanted <= 0:
            raise BadRequest(f"maxNum is {wanted}; at least 1 is needed")
        records = self._view.find_by_key(
            request.topic,
            request.key,
            max_count=min(wanted, QUERY_MESSAGES_MAX),
            begin_ms=request.begin_timestamp,
            end_ms=request.end_timestamp,
            below=self._confirmations.confirmed,
        )
        if not records:
            return [
                Reply(
                    received.to,
                    Code.QUERY_NOT_FOUND,
                    f"no message with key {request.key} in {request.topic} at this broker",
                    QueryMessageResponse(
                        index_last_update_timestamp=0, index_last_update_phyoffset=0
                    ),
                )
            ]
        newest = parts_of(records[0], 0, len(records[0]))
        header = QueryMessageResponse(
            index_last_update_timestamp=newest.store_timestamp,
            index_last_update_phyoffset=newest.position,
        )
        return [Reply(received.to, header=header, body=(b"".join(records),))]
