"""A suite with data for every page of the console.

    with ConsoleScene(folder) as scene:
        scene.console.address      # host:port of the web pages and the API
        scene.sent                 # ID of a message that was traced and consumed

Two brokers with a replica each, clients and the console, all in this process. There is a filter if
the machine can run the filter sandbox; otherwise the page of filters is empty.

State: soft.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from threading import Event
from typing import Any, Self

from kourou.client.consumer.outcomes import DeadLetter, RetryLater
from kourou.client.settings.client_settings import ConsumerSettings, ProducerSettings
from kourou.model.subscription import ConsumeFromWhere
from kourou.sync import Client
from kourou.testing.cluster import Cluster
from kourou_filter_server.zygote_link import missing
from kourou_rigs.console import ConsoleHere

WAIT_S = 60.0
HALF_AN_HOUR = 16
"""A delay level."""

DEPARTURES = 120
AIRPORTS = ("CDG", "LIS", "ARN", "VIE", "OSL", "DUB")
AIRLINES = ("AF", "TP", "SK", "OS", "DY", "EI")

FILTER = """\
def match(message, context):
    return message.properties.get("region") == "north"
"""


class ConsoleScene:
    """Use it by `with`. `console` are options of ConsoleHere."""

    def __init__(
        self, folder: Path, *, brokers: int = 2, replicas: int = 1, **console: Any
    ) -> None:
        self._stack = ExitStack()
        self._options = console
        self.filters = not missing()
        self.cluster = Cluster(
            folder, brokers=brokers, replicas=replicas, filter_servers=int(self.filters)
        )
        #: ID of a message that was consumed.
        self.sent = ""

    def __enter__(self) -> Self:
        with self._stack:
            self._stack.enter_context(self.cluster)
            self.producer = self._stack.enter_context(self._client("departures-desk"))
            self._topics()
            self.console = self._stack.enter_context(ConsoleHere(self.cluster, **self._options))
            self._departures()
            self._failures()
            for tag in ("cabin", "hold"):  # two consumers with different subscriptions
                self.listen("carousel", "baggage", lambda _message: None, tag)
            self._waiting()
            self._decisions()
            self._stack = self._stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def send(self, count: int, begin: int = 0) -> Sequence[str]:
        """Send `count` departures; returns their message IDs."""
        ids = []
        for number in range(begin, begin + count):
            airport = AIRPORTS[number % len(AIRPORTS)]
            flight = f"{AIRLINES[number % len(AIRLINES)]}{400 + number}"
            body = {"flight": flight, "from": airport, "gate": f"B{number % 20}", "minutes": number}
            result = self.producer.send(
                "departures",
                json.dumps(body).encode(),
                tag="delayed" if number % 7 == 0 else "on-time",
                keys=(flight, airport),
                properties={"region": "north" if airport in ("ARN", "OSL") else "south"},
            )
            ids.append(result.message_id)
        return ids

    def listen(self, group: str, topic: str, handler: Callable[[Any], Any], tag: str = "*") -> None:
        """Add a consumer to a group until the scene ends."""
        client = self._stack.enter_context(self._client(group))
        self._stack.enter_context(client.listen(topic, handler, tag))

    def _client(self, group: str, **consuming: Any) -> Client:
        """A client that writes message traces, as producer and as consumer."""
        return self.cluster.client(
            group,
            producer=ProducerSettings(producer_group=group, message_trace=True),
            consumer=ConsumerSettings(
                consumer_group=group,
                consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
                message_trace=True,
                **consuming,
            ),
        )

    def _topics(self) -> None:
        for topic in ("departures", "bookings", "payments", "baggage"):
            self.cluster.create_topic(topic)

    def _departures(self) -> None:
        """A group without lag, and one that stopped early."""
        shown, all_shown = itertools.count(1), Event()

        def show(_message: Any) -> None:
            if next(shown) == DEPARTURES:
                all_shown.set()

        self.listen("board", "departures", show)
        self.sent = self.send(20)[0]
        with (
            self.cluster.client("nightly") as nightly,
            nightly.subscribe("departures") as departures,
        ):
            for _, _ in zip(range(10), departures, strict=False):
                pass
        self.send(DEPARTURES - 20, 20)
        assert all_shown.wait(WAIT_S)

    def _failures(self) -> None:
        """A group with dead letters and with retries."""
        seen, all_seen = itertools.count(1), Event()
        count = 9

        def bill(message: Any) -> None:
            number = int(message.body)
            try:
                if number % 3 == 0:
                    raise DeadLetter("the card was declined")
                if number % 3 == 1:
                    raise DeadLetter(f"no such booking: {number}")
                raise RetryLater("the bank is closed", delay_level=HALF_AN_HOUR)
            finally:
                if next(seen) == count:
                    all_seen.set()

        self.listen("billing", "bookings", bill)
        for number in range(count):
            self.producer.send("bookings", b"%d" % number, tag="card", keys=f"booking-{number}")
        assert all_seen.wait(WAIT_S)

    def _waiting(self) -> None:
        """Delayed messages, and an unresolved transaction."""
        for number in range(3):
            self.producer.send(
                "departures", b"boarding call %d" % number, delay_level=HALF_AN_HOUR, tag="call"
            )

        @self.producer.transaction_check("payments")
        def check(_message: Any) -> None:
            """Leaves the transaction unresolved."""

        with self.producer.transaction("payments", b'{"amount": 120}', keys="p-1") as payment:
            payment.unknown()

    def _decisions(self) -> None:
        """A filter, and configuration changes with reasons."""
        admin = self.producer.admin
        if self.filters:
            admin.filters.put("board", "north-only", FILTER, note="northern boards only")
        admin.topics.create("bookings", queues=6, reason="more bookings in summer")
        admin.brokers.update_config(
            "broker-a", {"maxTransferCountOnMessageInMemory": "64"}, reason="a trial"
        )
