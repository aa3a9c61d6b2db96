"""One console over one cluster for the tests of a file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kourou.protocol.record import compression
from kourou.testing.cluster import Cluster
from kourou_rigs.console import ConsoleHere


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two brokers, and a topic "orders"."""
    with Cluster(tmp_path_factory.mktemp("cluster"), brokers=2) as cluster:
        cluster.create_topic("orders")
        yield cluster


@pytest.fixture(scope="module")
def console(cluster: Cluster) -> Iterator[ConsoleHere]:
    """Its console, without tokens."""
    with ConsoleHere(cluster) as here:
        yield here
        assert not here.failures


@pytest.fixture
def inflated(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The size of each piece that was inflated."""
    sizes: list[int] = []
    made = compression.pieces

    def counted(*args: Any) -> Iterator[bytes]:
        for piece in made(*args):
            sizes.append(len(piece))
            yield piece

    monkeypatch.setattr(compression, "pieces", counted)
    return sizes
