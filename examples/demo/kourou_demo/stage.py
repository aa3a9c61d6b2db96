"""The context that all parts of the demo's second act share.

State: soft.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from kourou.client.client import Client
from kourou.client.settings.client_settings import ConsumerSettings
from kourou.clock import Clock
from kourou.errors import Rejected
from kourou.model.subscription import ConsumeFromWhere
from kourou.service.processes import Children
from kourou_demo.flights import Flight
from kourou_demo.followed import Followed
from kourou_demo.progress_waits import ProgressWaits
from kourou_demo.verdict import Numbers
from kourou_demo.view import View

TOPIC_QUEUES = 4


@dataclass(frozen=True, slots=True)
class Stage:
    """The producer's client, the flights of the day, and the recipients of progress and results.

    `departed` and `cancelled` are the day's flights. `folder` is the demo's own.
    """

    address: str
    folder: Path
    children: Children
    client: Client
    view: View
    clock: Clock
    waits: ProgressWaits
    numbers: Numbers
    departed: list[Flight]
    cancelled: list[Flight]
    followed: Followed = field(default_factory=Followed)

    async def create_topic(self, topic: str) -> None:
        """Create the topic of a part."""
        await self.client.admin.topics.create(topic, queues=TOPIC_QUEUES)

    def member(self, group: str, *, attempts_max: int | None = None) -> Client:
        """A client of a group, not yet open; the group starts at the first message."""
        settings = ConsumerSettings(
            consumer_group=group,
            consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
            max_reconsume_times=-1 if attempts_max is None else attempts_max - 1,
        )
        return Client(self.address, consumer=settings)

    async def joined(self, group: str, count: int) -> None:
        """Wait until the broker knows `count` consumers of a group."""

        async def known() -> int:
            try:
                return len(await self.client.admin.groups.members(group))
            except Rejected:
                return 0  # no consumer has joined yet

        await self.waits.reach(f"the group {group}", known, count)

    async def stored(self, topic: str) -> int:
        """The number of messages in the queues of a topic."""
        stats = await self.client.admin.topics.stats(topic)
        return sum(queue.max_offset - queue.min_offset for queue in stats.values())
