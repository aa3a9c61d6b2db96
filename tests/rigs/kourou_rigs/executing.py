"""The effect executor of a broker over a store on a simulated disk, and what it is given to do.

State: soft.
"""

from __future__ import annotations

import asyncio
from typing import Any

from kourou.broker.storage.effect_executor import EffectExecutor
from kourou.engine.effects import Effect
from kourou.engine.inputs import RegistrationDone
from kourou.protocol.messages.sends import SendMessage
from kourou.protocol.record.message_record import encode_draft
from kourou.protocol.record.properties import encode_properties
from kourou.runtime import Peer
from kourou.store.flush_schedule import FlushPolicy
from kourou_rigs.kept_carriers import KeptCarriers

PEER = Peer(1, "local", ("127.0.0.1", 4))
RARELY = FlushPolicy(interval_ms=10**9, least_pages=10**9, thorough_ms=10**9)
"""Nothing is due by the clock."""


def effect_executor(site: Any, make: Any = EffectExecutor, **changes: Any) -> EffectExecutor:
    """An executor over the site's store and clock, which flushes rarely and registers at once."""
    post = changes.get("post", lambda _item: None)
    given = {
        "log_flush": RARELY,
        "queue_flush": RARELY,
        "write_out": RARELY,
        "protocols": KeptCarriers(),
        "post": post,
        "config_changed": lambda _table: None,
        "register_now": lambda number: post(RegistrationDone(number)) if number else None,
        **changes,
    }
    made: EffectExecutor = make(site.store, site.clock, **given)
    return made


def perform(executor: EffectExecutor, *effects: Effect) -> None:
    """Execute these effects, one after the other."""
    performers = executor.performers()
    for effect in effects:
        performers[type(effect)](effect)


async def settled(executor: EffectExecutor) -> None:
    """Wait until no thread works and nothing is scheduled."""
    loop = asyncio.get_running_loop()
    for _ in range(5):
        while executor._tasks or executor._flushing:
            await asyncio.gather(*executor._tasks, return_exceptions=True)
            await loop.run_in_executor(executor._flusher, int)  # behind a flush
        await asyncio.sleep(0)


def draft(body: bytes = b"x") -> bytes:
    """A record of the first queue of `orders`, without offset and position."""
    return encode_draft(
        topic=b"orders",
        queue_id=0,
        body=body,
        properties=encode_properties({}),
        born_timestamp=1,
        born_host=bytes(8),
    )


def append(executor: EffectExecutor, parts: Any, wall_ms: int, body: bytes = b"x") -> None:
    """Append one message as the core of these parts does, and execute it."""
    parts.appends.write_one(draft(body), ("orders", 0), wall_ms)
    parts.confirmations.append(parts.appends.end)
    perform(executor, *parts.appends.take_done())


def send_to(topic: str = "orders", **fields: Any) -> SendMessage:
    """A client's request to store a message in the first queue of a topic."""
    return SendMessage(
        producer_group="p",
        topic=topic,
        queue_id=0,
        born_timestamp=1,
        default_topic="TBW102",
        default_topic_queue_nums=4,
        **fields,
    )
