"""Sending several messages at once: arguments, encoding, and results; shared by both APIs.

`send_many` sends independent messages: each is routed on its own. `send_batch` is RocketMQ's batch:
one topic, one queue, one request, all or nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any, cast

from kourou.client.producer.pending_sends import (
    Gathering,
    Outcome,
    PendingBatch,
    PendingSend,
    Port,
    first_error,
)
from kourou.client.producer.producer_core import Choice, ProducerCore, TopicTargets, choice_of_named
from kourou.errors import BadRequest, KourouError, MessageIllegal
from kourou.model.limits import BODY_SIZE_BYTES_MAX, FRAME_RECORDS_MAX
from kourou.model.message import Message, SendResult

PARTS_UNDER_WAY = 3
"""The number of frames of one `send_many` in flight while the next one is built."""

_delay_of, _wait_of = attrgetter("delay_level"), attrgetter("wait_store_ok")

MakeGathering = Callable[[int], Gathering]


class SomeNotSent(KourouError):
    """Some of several messages failed; `outcomes` has a result or an error for each, in order."""

    def __init__(self, outcomes: list[Outcome]) -> None:
        failures = [outcome for outcome in outcomes if isinstance(outcome, KourouError)]
        super().__init__(
            f"{len(failures)} of {len(outcomes)} messages failed; first error: {failures[0]}",
            code=failures[0].wire_code,
        )
        self.outcomes = outcomes


def as_messages(
    first: str | Iterable[Message],
    bodies: Iterable[Any] | None,
    tag: str | None,
    keys: str | Iterable[str],
) -> list[Message]:
    """Return the messages of a call: Messages, or a topic and bodies (or its Messages).

    Raises BadRequest if `bodies` is one text or bytes, whose characters would be messages, or if
    something else than Messages is given without a topic.
    """
    if isinstance(first, str):
        if isinstance(bodies, str | bytes | bytearray | memoryview):
            raise BadRequest(
                f"the bodies are one {type(bodies).__name__}, not a list of bodies",
                hint="put it into a list, or use send",
            )
        shared_keys = tuple(keys.split()) if isinstance(keys, str) else tuple(keys)
        messages = [
            body if isinstance(body, Message) else Message(first, body, tag=tag, keys=shared_keys)
            for body in bodies or ()
        ]
        for message in messages:
            if message.topic != first:
                raise BadRequest(
                    f"the message is for topic {message.topic}, the batch for topic "
                    f"{first}; a batch has one topic"
                )
    else:
        messages = list(first)
        for message in messages:
            if not isinstance(message, Message):
                raise BadRequest(
                    f"{type(message).__name__} is not a kourou.Message",
                    hint="name the topic first: send_many(topic, bodies)",
                )
    return messages


def pending_many(
    core: ProducerCore,
    port: Port,
    targets: Mapping[str, TopicTargets],
    messages: list[Message],
    timeout_ms: int | None,
    make: MakeGathering,
) -> list[PendingSend]:
    """Build messages that are routed independently; all are checked before any is sent."""
    ways = [
        core.usual_target(
            targets[message.topic],
            core.terms(timeout_ms=timeout_ms, wait=message.wait_store_ok),
            message,
        )
        for message in messages
    ]
    return core.pending_sends(port, make(len(messages)), messages, ways)


def pending_batch(
    core: ProducerCore,
    port: Port,
    topic: TopicTargets,
    messages: list[Message],
    choice: Choice,
    timeout_ms: int | None,
    waiter: Any,
    message_ids: Sequence[str] = (),
) -> PendingBatch:
    """Build a batch, whose messages all go to one queue in one request.

    Raises MessageIllegal if the batch has too many messages or too many bytes, BadRequest if its
    messages cannot share a batch.
    """
    if message_ids:
        if len(message_ids) != len(messages):
            raise BadRequest(f"got {len(message_ids)} message IDs for {len(messages)} messages")
        for one in message_ids:
            choice = choice_of_named(choice, one)
    if len(messages) > FRAME_RECORDS_MAX:
        raise MessageIllegal(
            f"the batch has {len(messages)} messages; at most {FRAME_RECORDS_MAX} are allowed",
            hint="use send_many, which has no such limit",
        )
    if any(map(_delay_of, messages)):
        raise BadRequest(
            "messages of a batch cannot be delayed",
            hint="use send_many, which sends each message separately",
        )
    if len(set(map(_wait_of, messages))) > 1:
        raise BadRequest("all messages of a batch must have the same wait_store_ok")
    terms = core.batch_terms(
        timeout_ms=timeout_ms,
        pinned=choice.pinned,
        wait=messages[0].wait_store_ok,
        repeated=bool(message_ids),
    )
    target = core.target(topic, terms, choice, messages[0])
    batch = core.pending_batch(port, waiter, messages, target, message_ids)
    size = len(batch.draft)
    if size > BODY_SIZE_BYTES_MAX:
        raise MessageIllegal(
            f"the batch has {size} bytes; at most {BODY_SIZE_BYTES_MAX} are allowed",
            hint="use send_many, which has no such limit",
        )
    return batch


def results(outcomes: list[Outcome]) -> list[SendResult]:
    """Return the results if all messages are stored. Raises SomeNotSent otherwise."""
    if first_error(outcomes) is not None:
        raise SomeNotSent(outcomes)
    return cast("list[SendResult]", outcomes)
