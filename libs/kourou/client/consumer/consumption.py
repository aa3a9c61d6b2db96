"""What an application wants to consume, as one value; shared by both APIs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from kourou.client.consumer.offsets import OffsetStore
from kourou.client.filters.expressions import Wanted, check_wanted
from kourou.client.filters.python_filter import Filter
from kourou.client.settings.client_settings import ConsumerSettings, ProducerSettings
from kourou.errors import BadRequest
from kourou.model.subscription import MATCH_ALL

BATCH_SIZE = 32
"""The default for the maximum number of messages in one call of a batch handler."""

Topics: TypeAlias = str | Mapping[str, Wanted]
"""One topic, or a mapping from topics to tag expressions or filters."""


@dataclass(frozen=True, slots=True)
class Consumption:
    """What to consume and how. `subscriptions` maps topics to tag expressions or filters."""

    settings: ConsumerSettings
    subscriptions: Mapping[str, Wanted]
    body_type: Any = None
    offsets: OffsetStore | None = None
    batched: bool = False
    ordered: bool = False
    auto_commit: bool = True


def consumption(
    settings: ConsumerSettings,
    topics: Topics | None,
    expression: Wanted,
    *,
    group: str | None,
    body_type: Any,
    offsets: OffsetStore | None,
    batch: bool | int = False,
    ordered: bool = False,
    auto_commit: bool = True,
) -> Consumption:
    """Return the value for one call of `subscribe` or `listen`; settings supply omitted arguments.

    Raises BadRequest if no topic is given, or if arguments or an expression are invalid.
    """
    if topics is None:
        topics = settings.subscription
        if not topics:
            raise BadRequest("no topic is given", hint="pass one, or set subscription")
    if offsets is None:
        offsets = settings.offset_store
    if group is not None:
        settings = replace(settings, consumer_group=group)
    if batch:
        size = settings.consume_message_batch_max_size
        if batch is not True:
            size = batch
        elif size == 1:
            size = BATCH_SIZE
        settings = replace(settings, consume_message_batch_max_size=size)
    if isinstance(topics, str):
        subscriptions: Mapping[str, Wanted] = {topics: expression}
    else:
        if expression != MATCH_ALL:
            raise BadRequest(
                "pass either one topic and an expression, or a mapping of topics to expressions"
            )
        subscriptions = dict(topics)
    for each in subscriptions.values():
        check_wanted(each)
    _check_filters(subscriptions)
    if not (ordered or auto_commit):
        raise BadRequest(
            "auto_commit=False requires ordered=True",
            hint="unordered messages are acknowledged one by one",
        )
    return Consumption(
        settings, subscriptions, body_type, offsets, bool(batch), ordered, auto_commit
    )


def _check_filters(subscriptions: Mapping[str, Wanted]) -> None:
    """Raise BadRequest if one name has two sources: a group has one filter of each name."""
    brought: dict[str, tuple[str, str]] = {}
    for topic, each in subscriptions.items():
        if not isinstance(each, Filter) or each.source is None:
            continue
        first, sha256 = brought.setdefault(each.name, (topic, each.sha256))
        if sha256 != each.sha256:
            raise BadRequest(
                f"the filters of {first} and {topic} are different but have "
                f"the same name, {each.name}",
                hint='rename one of them: @Filter.define("late")',
            )


def chosen_handler(
    settings: ConsumerSettings, handler: Callable[[Any], Any] | None
) -> Callable[[Any], Any]:
    """Return the handler of a `listen` call or of the settings.

    Raises BadRequest if none is valid.
    """
    if handler is None:
        handler = settings.message_listener
    if handler is None:
        raise BadRequest("no handler is given", hint="pass one, or set message_listener")
    if not callable(handler):
        raise BadRequest(
            f"the handler is {handler!r}, which is not callable",
            hint="usage: listen(topics, handler, expression)",
        )
    return handler


def group_defaults(
    group: str | None, producer: ProducerSettings | None, consumer: ConsumerSettings | None
) -> tuple[ProducerSettings, ConsumerSettings]:
    """Return the given settings; missing ones are created with the client's group."""
    if producer is None:
        producer = ProducerSettings(producer_group=group) if group else ProducerSettings()
    if consumer is None:
        consumer = ConsumerSettings(consumer_group=group) if group else ConsumerSettings()
    return producer, consumer
