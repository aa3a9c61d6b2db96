"""Transactions in two calls: their IDs, their decisions, and the replies to brokers' check-backs.

An ID contains the half message's position, so every gateway of the same producer group can decide
it: no gateway keeps a transaction alone. The reply to a check-back is the caller's decision if it
was made but not received by the broker; otherwise it is unknown. Then the broker checks again, and
rolls the half message back after transactionCheckMax checks.

State: soft, bounded: decisions that no broker has received.
"""

from __future__ import annotations

import base64
import binascii
from collections import OrderedDict

import msgspec

from kourou.client.consumer.received import ReceivedMessage
from kourou.errors import BadRequest, Rejected
from kourou.model.limits import GATEWAY_DECISIONS_MAX, GATEWAY_TRANSACTION_ID_LENGTH_MAX
from kourou.model.message import Property, SendResult, SendStatus
from kourou.model.topic import MessageQueue
from kourou.model.transaction import TransactionState
from kourou.protocol.record.message_id import decode_offset_id
from kourou_console.gateway import Gateway


class _Place(msgspec.Struct, frozen=True, array_like=True):
    version: int
    topic: str
    broker: str
    queue_id: int
    offset: int
    offset_message_id: str
    message_id: str


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Place).decode


def id_of(half: SendResult) -> str:
    """The ID of a stored half message, with characters that are valid in a path."""
    queue = half.queue
    place = _Place(
        1,
        queue.topic,
        queue.broker_name,
        queue.queue_id,
        half.offset,
        half.offset_message_id,
        half.message_id,
    )
    return base64.urlsafe_b64encode(_encode(place)).rstrip(b"=").decode()


def id_of_waiting(half: ReceivedMessage, group: str) -> str | None:
    """The ID of a half message that was read from its broker; None if `group` cannot decide it.

    Brokers accept decisions only from the producer group that stored it, and decide half messages
    of a batch only together.
    """
    said = half.properties
    topic, queue = said.get(Property.REAL_TOPIC), said.get(Property.REAL_QID, "")
    if said.get(Property.PGROUP) != group or Property.BATCH in said or topic is None:
        return None
    if not (queue.isascii() and queue.isdigit() and len(queue) < 10):
        return None
    return id_of(
        SendResult(
            SendStatus.SEND_OK,
            half.message_id,
            MessageQueue(topic, half.queue.broker_name, int(queue)),
            half.offset,
            half.offset_message_id,
        )
    )


def half_of(transaction_id: str) -> SendResult:
    """The half message of an ID. Raises BadRequest if no gateway created the ID."""
    wrong = BadRequest(f"{transaction_id[:60]!r} is not a transaction ID")
    if len(transaction_id) > GATEWAY_TRANSACTION_ID_LENGTH_MAX or not transaction_id.isascii():
        raise wrong
    try:
        content = base64.b64decode(transaction_id + "=" * (-len(transaction_id) % 4), b"-_", True)
        place = _decode(content)
    except (binascii.Error, ValueError, msgspec.DecodeError):
        raise wrong from None
    if place.version != 1 or not 0 <= place.offset < 2**63 or not 0 <= place.queue_id < 2**31:
        raise wrong
    decode_offset_id(place.offset_message_id)
    return SendResult(
        SendStatus.SEND_OK,
        place.message_id,
        MessageQueue(place.topic, place.broker, place.queue_id),
        place.offset,
        place.offset_message_id,
    )


class HalfMessages:
    """A component of the gateway: replies to brokers' check-backs."""

    def __init__(self, gateway: Gateway) -> None:
        self._client = gateway.client
        self._decided: OrderedDict[str, TransactionState] = OrderedDict()
        gateway.client.transaction_check("")(self._answer)

    async def start(self) -> None:
        """Does nothing: the constructor registers the check-back handler."""

    async def decide(self, half: SendResult, state: TransactionState) -> None:
        """Send the decision to the broker; if that fails, the next check-back gets it.

        Raises what the client raises.
        """
        self._decided[half.message_id] = state
        while len(self._decided) > GATEWAY_DECISIONS_MAX:
            self._decided.popitem(last=False)
        try:
            await self._client.decide(half, state)
        except Rejected:  # it is decided differently or missing: nothing to send
            self._decided.pop(half.message_id, None)
            raise
        self._decided.pop(half.message_id, None)

    async def _answer(self, message: ReceivedMessage) -> TransactionState | None:
        return self._decided.get(message.message_id)
