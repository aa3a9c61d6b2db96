"""Send many messages: as one batch in one queue, or individually over all queues."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence

from kourou import ReceivedMessage
from kourou.sync import Client

ADDRESS = os.environ.get("NAMESRV_ADDR", "127.0.0.1:9876")


def main() -> None:
    """Send a batch of three and a thousand single messages; consume them in batches."""
    done = threading.Event()
    counts: list[int] = []

    def work(messages: Sequence[ReceivedMessage]) -> None:
        counts.append(len(messages))  # a batch from one queue, at most 100 messages
        if sum(counts) >= 1_003:
            done.set()

    with Client(ADDRESS, group="batches") as mq:
        together = mq.send_batch("batch", ["one", "two", "three"], tag="TagA")
        print("all or none, in one queue:", *(f"{one.queue}@{one.offset}" for one in together))
        spread = mq.send_many("batch", [f"message {number}" for number in range(1_000)])
        print(f"{len(spread)} messages in {len({one.queue for one in spread})} queues")
        with mq.listen("batch", work, batch=100):
            done.wait()
    print(f"{sum(counts)} consumed, up to {max(counts)} at a time")


if __name__ == "__main__":
    main()
