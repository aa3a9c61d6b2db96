"""Transactions in two calls: their ids, what was decided, and honest answers to brokers that ask.

An id names the half message's place, so that any gateway of the same producer group can decide it:
nothing of a transaction is kept here alone. A broker that asks gets the caller's word if it was
given (and the broker had not heard it), else none: then it asks again, and gives the half message
up when it has asked in vain for as often as its transactionCheckMax.

State: soft, bounded: decisions that no broker has heard.
"""

from __future__ import annotations

import base64
import binascii
from collections import OrderedDict

import msgspec

from kourou.client.received import ReceivedMessage
from kourou.errors import BadRequest, Rejected
from kourou.model.limits import GATEWAY_DECISIONS_MAX, GATEWAY_TRANSACTION_ID_LENGTH_MAX
from kourou.model.message import Property, SendResult, SendStatus
from kourou.model.queue import MessageQueue
from kourou.model.transaction import TransactionState
from kourou.protocol.message_id import decode_offset_id
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
    """The id of a stored half message; letters that may stand in a path as they are."""
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
    """The id of a half message as it was found at its broker; None: `group` cannot end it.

    Brokers take the word of the producer group that stored it, and end those of a batch only as a
    whole.
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
    """The half message of an id. Raises BadRequest for what no gateway gave."""
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


class Halves:
    """A part of the gateway: the one who answers brokers' questions."""

    def __init__(self, gateway: Gateway) -> None:
        self._client = gateway.client
        self._decided: OrderedDict[str, TransactionState] = OrderedDict()
        gateway.client.transaction_check("")(self._answer)

    async def start(self) -> None:
        """It answers since it was made."""

    async def decide(self, half: SendResult, state: TransactionState) -> None:
        """Tell the broker; if it does not hear, it is told when it asks. Raises as the client."""
        self._decided[half.message_id] = state
        while len(self._decided) > GATEWAY_DECISIONS_MAX:
            self._decided.popitem(last=False)
        try:
            await self._client.decide(half, state)
        except Rejected:  # it was decided otherwise, or is not there: nothing is to be told
            self._decided.pop(half.message_id, None)
            raise
        self._decided.pop(half.message_id, None)

    async def _answer(self, message: ReceivedMessage) -> TransactionState | None:
        return self._decided.get(message.message_id)
