"""Each order's steps are consumed in the order in which they were sent, many orders side by side.

What has the same `order_key` goes to the same queue, and `ordered=True` consumes a queue's messages
one after the other. Two members share the queues; what is not consumed holds up its own queue only.
"""

from __future__ import annotations

import os
import threading
import uuid
from collections import defaultdict

from kourou import ReceivedMessage, Suspend
from kourou.sync import Client

ADDRESS = os.environ.get("NAMESRV_ADDR", "127.0.0.1:9876")
STEPS = ("created", "paid", "packed", "sent")


class Warehouse:
    """What became of the orders, by their numbers."""

    def __init__(self, orders: list[str]) -> None:
        self.orders = orders
        self.steps: dict[str, list[str]] = defaultdict(list)
        self.done = threading.Event()

    def work(self, message: ReceivedMessage) -> None:
        """Do one step of one order. The third order's payment fails at first, and comes again."""
        order, step = message.keys[0], message.body
        if (order, step, message.attempt) == (self.orders[2], "paid", 1):
            print(f"{order}: the bank does not answer yet")
            raise Suspend(200)  # ms; after any other exception it is a second
        self.steps[order].append(step)
        if all(len(self.steps[one]) >= len(STEPS) for one in self.orders):
            self.done.set()


def main() -> None:
    """Send forty steps of ten orders, all mixed; consume them by two members of a group."""
    orders = [f"order-{uuid.uuid4().hex[:6]}" for _ in range(10)]
    warehouse = Warehouse(orders)
    with Client(ADDRESS, group="warehouse") as one, Client(ADDRESS, group="warehouse") as two:
        for step in STEPS:
            for order in orders:
                one.send("ordermessage", step, keys=[order], order_key=order)
        with (
            one.listen("ordermessage", warehouse.work, body_type=str, ordered=True),
            two.listen("ordermessage", warehouse.work, body_type=str, ordered=True),
        ):
            warehouse.done.wait()
    for order in orders:
        print(order, " ".join(warehouse.steps[order]))


if __name__ == "__main__":
    main()
