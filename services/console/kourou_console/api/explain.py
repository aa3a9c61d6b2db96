"""Explains the state of a message: one operation."""

from __future__ import annotations

import msgspec

from kourou.client.explain.explanation import Explanation
from kourou_console.gateway import Gateway
from kourou_console.operation import Operation


class ExplainParams(msgspec.Struct, frozen=True):
    """The message, and the group in question."""

    id: str
    topic: str | None = None
    group: str | None = None


async def explain(gateway: Gateway, parameters: ExplainParams) -> Explanation:
    """Collect information from brokers and consumers, and return the conclusions."""
    return await gateway.admin.explain.message(
        parameters.id, topic=parameters.topic, group=parameters.group
    )


OPERATIONS: tuple[Operation, ...] = (
    Operation(
        method="GET",
        path="/v1/messages/{id}/explain",
        name="explain_message",
        about="Explain where a message is and why. Each reason has a stable code, a sentence and "
        "an action. `id` is a producer's message ID, an offset message ID, a business key or "
        "topic/broker/queue@offset (slashes encoded as %2F). `topic` limits the search for a key "
        "to one topic, `group` the explanation to one group. A message that is not found has an "
        "explanation, too: then `message` is null.",
        chapter="Messages",
        handle=explain,
        answer=Explanation,
        parameters=ExplainParams,
    ),
)
