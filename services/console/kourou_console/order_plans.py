"""Plans the effect of a topic's change on its order setting at the name servers.

The setting is for the whole topic, whichever brokers a change names. It contains the number of
queues of each broker, and producers send to no other queues. So it is created only if every broker
reports its number of queues, and it is updated when a number changes.

State: none. Name servers store the setting.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from kourou.client.admin.name_servers import ORDER_NAMESPACE
from kourou.client.session.routes import strict_queues
from kourou.errors import Unavailable
from kourou.model.topic import TopicConfig
from kourou_console.gateway import Gateway
from kourou_console.lists import Missing


@dataclass(frozen=True, slots=True)
class OrderPlan:
    """The setting before and after the change, queues by broker; empty: there is none."""

    topic: str
    before: Mapping[str, int] = field(default_factory=dict)
    after: Mapping[str, int] = field(default_factory=dict)
    #: Brokers that the setting needs but that did not report their number of queues.
    unknown: Sequence[Missing] = ()

    def said(self, *, preview: bool) -> list[str]:
        """Sentences that describe the change, with all brokers' names."""
        if self.before == self.after:
            return []
        will = "would be" if preview else "is"
        if not self.after:
            names = ", ".join(sorted(self.before))
            return [f"The order setting of {self.topic} {will} removed for all brokers: {names}."]
        text = ";".join(f"{name}:{count}" for name, count in sorted(self.after.items()))
        says = [f"The order setting of {self.topic} {will} {text} at every name server."]
        says += [f"That is refused while {one.what} does not respond." for one in self.unknown]
        return says

    def check(self) -> None:
        """Raises Unavailable if the setting would omit a broker."""
        if self.unknown and self.before != self.after:
            raise Unavailable(
                f"{self.unknown[0].what} did not report its number of queues: "
                f"{self.unknown[0].why}",
                hint="producers would not send to a broker that the order setting leaves out: "
                "retry when it responds",
            )

    async def carry_out(self, gateway: Gateway) -> None:
        """Apply the change, if there is one."""
        if self.before == self.after:
            return
        if self.after:
            queues = dict(sorted(self.after.items()))
            await gateway.admin.name_servers.put_order(self.topic, queues)
        else:
            await gateway.admin.name_servers.delete(ORDER_NAMESPACE, self.topic)


async def order_plan(
    gateway: Gateway,
    topic: str,
    wanted: bool | None,
    now: Mapping[str, TopicConfig],
    queues: Mapping[str, int],
    unknown: Sequence[Missing],
) -> OrderPlan:
    """The plan for brokers that will have these numbers of write queues.

    `now` is the topic at all brokers that have it, except for the `unknown` ones. If `wanted` is
    None or equals the brokers' value, the setting stays, and only changed numbers are updated.
    """
    changed = {
        name: count
        for name, count in queues.items()
        if name not in now or now[name].write_queue_nums != count
    }
    turned = wanted is not None and any(
        name not in now or now[name].order != wanted for name in queues
    )
    if not (changed or turned):
        return OrderPlan(topic)
    text = await gateway.admin.name_servers.get(ORDER_NAMESPACE, topic)
    before = dict(Counter(queue.broker_name for queue in strict_queues(topic, text or "")))
    if not turned:
        return OrderPlan(topic, before, before | changed if before else {})
    if not wanted:
        return OrderPlan(topic, before)
    everywhere = {name: one.write_queue_nums for name, one in now.items()}
    return OrderPlan(topic, before, everywhere | dict(queues), unknown)
