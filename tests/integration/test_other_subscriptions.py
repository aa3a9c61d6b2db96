"""A client warns when its group has consumers with other subscriptions, through a real broker."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator

import pytest

from kourou.testing.cluster import Cluster

WAIT_S = 30


class Warnings(logging.Handler):
    """Keeps the sentences about other subscriptions; `wanted` of them set `enough`."""

    def __init__(self, wanted: int) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.enough = threading.Event()
        self._wanted = wanted

    def emit(self, record: logging.LogRecord) -> None:
        if "subscriptions differ" in record.getMessage():
            self.texts.append(record.getMessage())
            if len(self.texts) >= self._wanted:
                self.enough.set()


@pytest.fixture
def warnings() -> Iterator[Callable[[int], Warnings]]:
    log = logging.getLogger("kourou.client")
    made: list[Warnings] = []

    def watch(wanted: int) -> Warnings:
        made.append(Warnings(wanted))
        log.addHandler(made[-1])
        return made[-1]

    yield watch
    for one in made:
        log.removeHandler(one)


def test_both_consumers_that_differ_are_warned(
    kourou_cluster: Callable[..., Cluster], warnings: Callable[[int], Warnings]
) -> None:
    cluster = kourou_cluster(1)
    cluster.create_topic("invoices")
    seen = warnings(2)
    with cluster.client("dunning") as first, cluster.client("dunning") as second:
        with first.subscribe("invoices", "paid"), second.subscribe("invoices", "open"):
            first.send(
                "invoices", b"1", tag="paid"
            )  # its heartbeat now names a producer group, too
            assert seen.enough.wait(WAIT_S), seen.texts
        ids = {first.client_id, second.client_id}
    for text in seen.texts:
        assert "consumer group dunning" in text
        assert all(client_id in text for client_id in ids)
    assert len(seen.texts) == len(set(seen.texts)), "each is said once"


def test_consumers_that_agree_are_not_warned(
    kourou_cluster: Callable[..., Cluster], warnings: Callable[[int], Warnings]
) -> None:
    cluster = kourou_cluster(1)
    cluster.create_topic("invoices")
    seen = warnings(1)
    with (
        cluster.client("dunning") as first,
        cluster.client("dunning") as second,
        first.subscribe("invoices", "paid || open"),
        second.subscribe("invoices", "open||paid"),
    ):
        pass  # subscribing returns when the broker has answered the heartbeat
    assert seen.texts == []
