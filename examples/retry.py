"""Failed messages are retried; those that never succeed become dead letters, to be sent again."""

from __future__ import annotations

import os
import queue

from kourou import DeadLetter, ReceivedMessage, RetryLater
from kourou.sync import Client

ADDRESS = os.environ.get("NAMESRV_ADDR", "127.0.0.1:9876")
GROUP = "parcel-service"


class ParcelService:
    """Delivers parcels to people who are known and at home."""

    def __init__(self) -> None:
        self.known = {"Ann", "Ben"}
        self.log: queue.Queue[str] = queue.Queue()

    def deliver(self, message: ReceivedMessage) -> None:
        """Deliver a parcel; Ben is not at home at the first attempt."""
        name = message.body
        if name not in self.known:
            self.log.put(f"{name}: a dead letter")
            raise DeadLetter(f"{name} is unknown")  # without it: sixteen more attempts
        if name == "Ben" and message.attempt == 1:
            self.log.put("Ben: not at home")
            raise RetryLater("not at home", delay_level=1)  # 1 s; by default 10 s, then 30 s …
        self.log.put(f"{name}: delivered at attempt {message.attempt}")


def main() -> None:
    """Send three parcels; the last one succeeds after the list of people has been corrected."""
    service = ParcelService()
    with Client(ADDRESS, group=GROUP) as mq:
        mq.send_many("retry", ["Ann", "Ben", "Zoe"])
        with mq.listen("retry", service.deliver, body_type=str):
            for _ in range(4):
                print(service.log.get())

            service.known.add("Zoe")
            dead_letters = mq.admin.dead_letters.of(GROUP)
            while not dead_letters:  # the broker stores it shortly
                dead_letters = mq.admin.dead_letters.of(GROUP)
            for dead_letter in dead_letters:
                print(f"{dead_letter.topic}, {dead_letter.message.body!r}: {dead_letter.reason}")
            mq.admin.dead_letters.resend(GROUP, dead_letters)
            mq.admin.dead_letters.deal_with(GROUP, dead_letters)
            print(service.log.get())


if __name__ == "__main__":
    main()
