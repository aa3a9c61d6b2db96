"""Send ten messages, and print the queue and offset of each."""

from __future__ import annotations

import os

from kourou.sync import Client

ADDRESS = os.environ.get("NAMESRV_ADDR", "127.0.0.1:9876")


def main() -> None:
    """Send the messages one after the other."""
    with Client(ADDRESS, group="quickstart-producers") as mq:
        for number in range(10):
            result = mq.send(
                "quickstart", f"Hello Kourou {number}", tag="TagA", keys=[f"hello-{number}"]
            )
            print(result)


if __name__ == "__main__":
    main()
