"""Broadcasting: every consumer of the group receives every message.

Each client keeps its offsets in a file below ~/.rocketmq_offsets, under its client ID. So each
needs its own `instance_name`, and the same one after a restart.
"""

from __future__ import annotations

import os
import queue
from collections import Counter

from kourou import ClientSettings, ConsumerSettings, MessageModel
from kourou.sync import Client

ADDRESS = os.environ.get("NAMESRV_ADDR", "127.0.0.1:9876")
SETTINGS = ConsumerSettings(consumer_group="price-boards", message_model=MessageModel.BROADCASTING)


def board(name: str) -> Client:
    """A client with this instance name."""
    return Client(ADDRESS, settings=ClientSettings(instance_name=name), consumer=SETTINGS)


def main() -> None:
    """Start two price boards and send five prices; both boards show all of them."""
    shown: queue.Queue[tuple[str, str]] = queue.Queue()
    with Client(ADDRESS, group="exchange") as exchange:
        exchange.admin.topics.create("broadcast", queues=4)  # else consumers find it late
        with (
            board("board-1") as one,
            board("board-2") as two,
            one.listen("broadcast", lambda price: shown.put(("1", price.body)), body_type=str),
            two.listen("broadcast", lambda price: shown.put(("2", price.body)), body_type=str),
        ):
            for price in range(5):
                exchange.send("broadcast", f"price {price}")
            seen = [shown.get() for _ in range(10)]
    for name, count in sorted(Counter(name for name, _ in seen).items()):
        print(f"board {name} shows {count}:", *sorted(body for who, body in seen if who == name))


if __name__ == "__main__":
    main()
