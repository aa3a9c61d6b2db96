"""Call a handler with one message on an operator's request (`consumeMessageDirectly`)."""

from __future__ import annotations

from kourou.client.codecs import Decode
from kourou.client.consumer.handlers import Runner
from kourou.client.consumer.outcomes import ConsumeRefused, reason_of
from kourou.client.consumer.received import ReceivedMessage, from_record
from kourou.client.introspection.running_info import DirectResult
from kourou.clock import Clock
from kourou.model.limits import FAILURE_REASON_LENGTH_MAX

SUCCESS = "CR_SUCCESS"
LATER = "CR_LATER"
RAISED = "CR_THROW_EXCEPTION"


class _OneCall:
    """The lease of such a message: keeps the outcome that its handler reports."""

    def __init__(self) -> None:
        self.said: list[BaseException | None] = []

    def ask(self, offset: int, failure: BaseException | None) -> None:
        """Record what the handler reports for its message."""
        self.said.append(failure)


async def called_directly(
    runner: Runner,
    record: bytes,
    decode: Decode | None,
    clock: Clock,
    *,
    batched: bool,
    order: bool = False,
) -> DirectResult:
    """Call the handler with this record and return the result."""
    message = from_record(record, "", decode)
    lease = message.lease = _OneCall()
    item: ReceivedMessage | list[ReceivedMessage] = [message] if batched else message
    begun_ms = clock.monotonic_ms()
    failure = await runner.call(item)
    if lease.said:
        failure = lease.said[0]
    spent_ms = clock.monotonic_ms() - begun_ms
    if failure is None:
        return DirectResult(SUCCESS, "", spent_ms, order)
    result = LATER if isinstance(failure, ConsumeRefused) else RAISED
    reason = reason_of(failure, FAILURE_REASON_LENGTH_MAX)
    return DirectResult(result, reason, spent_ms, order)
