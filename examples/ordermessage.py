"""Ordered messages: the steps of each order are consumed in order, different orders in parallel.

Messages with the same `order_key` go to the same queue, and `ordered=True` consumes the messages of
a queue one after the other. Two consumers share the queues. A failing message blocks only its own
queue.
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
    """The completed steps of each order, by order number."""

    def __init__(self, orders: list[str]) -> None:
        self.orders = orders
        self.steps: dict[str, list[str]] = defaultdict(list)
        self.done = threading.Event()

    def work(self, message: ReceivedMessage) -> None:
        """Process one step. The payment of the third order fails once and is redelivered."""
        order, step = message.keys[0], message.body
        if (order, step, message.attempt) == (self.orders[2], "paid", 1):
            print(f"{order}: the bank does not answer yet")
            raise Suspend(200)  # delay in ms; other exceptions delay by one second
        self.steps[order].append(step)
        if all(len(self.steps[one]) >= len(STEPS) for one in self.orders):
            self.done.set()


def main() -> None:
    """Send forty interleaved steps of ten orders; two consumers of a group process them."""
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
