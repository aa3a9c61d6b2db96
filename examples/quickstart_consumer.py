"""Print what comes, until Ctrl-C. Start two of these, and they share the messages.

What was consumed is committed, so the next start goes on where this one ended. To see a message
come again, let `show` raise something: that is after 10 seconds, then after 30, and so on.
"""

from __future__ import annotations

import os
import signal

from kourou import ConsumeFromWhere, ConsumerSettings, ReceivedMessage
from kourou.sync import Client

ADDRESS = os.environ.get("NAMESRV_ADDR", "127.0.0.1:9876")

SETTINGS = ConsumerSettings(
    consumer_group="quickstart-consumers",
    consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,  # a new group, that is
)


def show(message: ReceivedMessage) -> None:
    """Called in threads, several at once. Returning consumes the message."""
    line = f"{message.queue}@{message.offset} {message.tag} {message.body}\n"
    print(line, end="", flush=True)  # in one piece, since others print, too


def main() -> None:
    """Consume until Ctrl-C, which may come while the consumer is still starting."""
    asked, tell = os.pipe()
    os.set_blocking(tell, False)
    signal.set_wakeup_fd(tell)  # a signal becomes a byte there, at whatever moment it comes
    signal.signal(signal.SIGINT, lambda *_: None)
    print("waiting for messages; Ctrl-C ends it", flush=True)
    with Client(ADDRESS, consumer=SETTINGS) as mq, mq.listen("quickstart", show, body_type=str):
        os.read(asked, 1)
    print("closed: what was consumed is committed")


if __name__ == "__main__":
    main()
