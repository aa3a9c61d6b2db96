"""Print messages until Ctrl-C. Start it twice, and both processes share the messages.

Progress is committed, so a restarted consumer continues where it stopped. To see a redelivery, let
`show` raise an exception: the message is redelivered after 10 seconds, then after 30, and so on.
"""

from __future__ import annotations

import os
import signal

from kourou import ConsumeFromWhere, ConsumerSettings, ReceivedMessage
from kourou.sync import Client

ADDRESS = os.environ.get("NAMESRV_ADDR", "127.0.0.1:9876")

SETTINGS = ConsumerSettings(
    consumer_group="quickstart-consumers",
    consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,  # applies to a new group
)


def show(message: ReceivedMessage) -> None:
    """Called in several threads concurrently. When it returns, the message is consumed."""
    line = f"{message.queue}@{message.offset} {message.tag} {message.body}\n"
    print(line, end="", flush=True)  # a single write, because other threads print, too


def main() -> None:
    """Consume until Ctrl-C, which may be pressed while the consumer is still starting."""
    asked, tell = os.pipe()
    os.set_blocking(tell, False)
    signal.set_wakeup_fd(tell)  # a signal writes a byte to this pipe at any time
    signal.signal(signal.SIGINT, lambda *_: None)
    print("waiting for messages; Ctrl-C ends it", flush=True)
    with Client(ADDRESS, consumer=SETTINGS) as mq, mq.listen("quickstart", show, body_type=str):
        os.read(asked, 1)
    print("closed: what was consumed is committed")


if __name__ == "__main__":
    main()
