"""What fails comes again; what never works becomes a dead letter, which an operator sends again."""

from __future__ import annotations

import os
import queue

from kourou import DeadLetter, ReceivedMessage, RetryLater
from kourou.sync import Client

ADDRESS = os.environ.get("NAMESRV_ADDR", "127.0.0.1:9876")
GROUP = "parcel-service"


class ParcelService:
    """Delivers parcels to people, if they are known and at home."""

    def __init__(self) -> None:
        self.known = {"Ann", "Ben"}
        self.told: queue.Queue[str] = queue.Queue()

    def deliver(self, message: ReceivedMessage) -> None:
        """Ben is not at home the first time."""
        name = message.body
        if name not in self.known:
            self.told.put(f"{name}: a dead letter")
            raise DeadLetter(f"nobody knows {name}")  # without it: sixteen attempts more
        if name == "Ben" and message.attempt == 1:
            self.told.put("Ben: not at home")
            raise RetryLater("not at home", delay_level=1)  # a second; by default 10 s, then 30 s …
        self.told.put(f"{name}: delivered at attempt {message.attempt}")


def main() -> None:
    """Three parcels; the last one after somebody has mended the list of people."""
    service = ParcelService()
    with Client(ADDRESS, group=GROUP) as mq:
        mq.send_many("retry", ["Ann", "Ben", "Zoe"])
        with mq.listen("retry", service.deliver, body_type=str):
            for _ in range(4):
                print(service.told.get())

            service.known.add("Zoe")
            letters = mq.admin.dead_letters.of(GROUP)
            while not letters:  # the broker has it in a moment
                letters = mq.admin.dead_letters.of(GROUP)
            for letter in letters:
                print(f"{letter.topic}, {letter.message.body!r}: {letter.reason}")
            mq.admin.dead_letters.resend(GROUP, letters)
            mq.admin.dead_letters.deal_with(GROUP, letters)
            print(service.told.get())


if __name__ == "__main__":
    main()
