"""A real broker in this process for tests of transactions, its time in the test's hands."""

from __future__ import annotations

import pytest

from kourou.testing.cluster import Cluster

ROUND_S = 60


class Shop(Cluster):
    """A cluster that knows the transactions of the producer group shop."""

    def open_halves(self) -> int:
        return sum(view.half_messages for view in self.each().values())

    def round_passes(self) -> None:
        """Let the time for a round of questions pass once every broker knows a member."""
        each = self.each().values()
        assert self._thread.run(
            self.until(lambda: all(view.membership.producers("shop") for view in each), 60)
        )
        self.clock.leap(ROUND_S)


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    with Shop(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


@pytest.fixture
def topic(broker):
    return broker.create_topic()


@pytest.fixture
def sent(broker):
    return broker.sent()
