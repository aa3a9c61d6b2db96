"""Why a message is where it is: one operation.

Lives here: its parameters. May not live here: the reasoning (kourou.client.explain).

State: none.
"""

from __future__ import annotations

import msgspec

from kourou.client.explain.explanation import Explanation
from kourou_console.gateway import Gateway
from kourou_console.operation import Operation


class Which(msgspec.Struct, frozen=True):
    """The message, and whose affair it is."""

    id: str
    topic: str | None = None
    group: str | None = None


async def explain(gateway: Gateway, parameters: Which) -> Explanation:
    """Ask brokers and members, and say what follows."""
    return await gateway.admin.explain.message(
        parameters.id, topic=parameters.topic, group=parameters.group
    )


OPERATIONS: tuple[Operation, ...] = (
    Operation(
        method="GET",
        path="/v1/messages/{id}/explain",
        name="explain_message",
        about="Why is a message where it is? Each reason has a stable code, a sentence, and what "
        "to do. `id` is a unique key, an offset message id, topic/broker/queue@offset (its slashes "
        "encoded as %2F) or a business key. `topic` is where a key is looked up, all topics "
        "without it; `group` is the only group to tell of, without it all that consume the topic. "
        "A message that is nowhere has an explanation, too: then `message` is null.",
        chapter="Messages",
        handle=explain,
        answer=Explanation,
        parameters=Which,
    ),
)
