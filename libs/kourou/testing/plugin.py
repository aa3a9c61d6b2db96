"""The pytest plugin: fixtures with a real broker, without a process, a container or a wait.

    def test_a_paid_order_is_announced(kourou_broker, kourou_sent):
        checkout(kourou_broker.address, "A-1")          # your code
        assert kourou_sent.one("orders", tag="paid").keys == ("A-1",)

pytest finds it by its entry point; it requires only pytest. No fixture is a coroutine, so async
tests work with pytest-asyncio, with anyio, and with `asyncio.run`.

State: soft.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Protocol

import pytest

if TYPE_CHECKING:
    from kourou import Client as AsyncClient
    from kourou.sync import Client
    from kourou.testing.chaos import Chaos
    from kourou.testing.cluster import Cluster, Storage
    from kourou.testing.cluster_thread import ClusterClock
    from kourou.testing.sent import AsyncSent, Sent


class MakeCluster(Protocol):
    """The type of the fixture `kourou_cluster`."""

    def __call__(
        self,
        brokers: int | None = None,
        *,
        storage: Storage = "memory",
        settings: Mapping[str, object] | None = None,
        filter_servers: int = 0,
        filter_settings: Mapping[str, object] | None = None,
        replicas: int = 0,
        raft: int = 0,
    ) -> Cluster:
        """Start a cluster that is stopped after the test; by default two brokers, or one Raft
        group.
        """
        ...


@pytest.fixture(scope="session")
def kourou_settings() -> Mapping[str, object]:
    """Settings of `kourou_broker` with RocketMQ's names; override this fixture in conftest.py."""
    return {}


@pytest.fixture(scope="session")
def kourou_broker(
    kourou_settings: Mapping[str, object], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    """A name server and one broker for the whole session; pass `address` to your clients."""
    from kourou.testing.cluster import Cluster

    with Cluster(tmp_path_factory.mktemp("kourou"), settings=kourou_settings) as cluster:
        yield cluster


@pytest.fixture
def kourou_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MakeCluster]:
    """A factory: `kourou_cluster(brokers=2)` starts a cluster for this test alone."""
    from kourou.testing.cluster import Cluster

    with ExitStack() as running:

        def make(
            brokers: int | None = None,
            *,
            storage: Storage = "memory",
            settings: Mapping[str, object] | None = None,
            filter_servers: int = 0,
            filter_settings: Mapping[str, object] | None = None,
            replicas: int = 0,
            raft: int = 0,
        ) -> Cluster:
            cluster = Cluster(
                tmp_path_factory.mktemp("kourou"),
                brokers=(1 if raft else 2) if brokers is None else brokers,
                storage=storage,
                settings=settings,
                filter_servers=filter_servers,
                filter_settings=filter_settings,
                replicas=replicas,
                raft=raft,
            )
            return running.enter_context(cluster)

        yield make


@pytest.fixture
def kourou_topic(kourou_broker: Cluster, request: pytest.FixtureRequest) -> str:
    """A topic of `kourou_broker` that only this test uses, named after the test."""
    return kourou_broker.create_topic(_named_after(request))


@pytest.fixture
def kourou_client(kourou_broker: Cluster, request: pytest.FixtureRequest) -> Iterator[Client]:
    """An open `kourou.sync.Client` of `kourou_broker`, in a group of its own."""
    with kourou_broker.client(_named_after(request)) as client:
        yield client


@pytest.fixture
def kourou_async_client(
    kourou_broker: Cluster, request: pytest.FixtureRequest
) -> Iterator[AsyncClient]:
    """An open `kourou.Client` of `kourou_broker`, in a group of its own."""
    from kourou.testing.cluster_thread import run_elsewhere

    client = kourou_broker.async_client(_named_after(request))
    run_elsewhere(client.open())
    try:
        yield client
    finally:
        run_elsewhere(client.close())


@pytest.fixture
def kourou_sent(kourou_broker: Cluster) -> Sent:
    """Checks for messages sent to `kourou_broker` during this test; they wait as needed."""
    return kourou_broker.sent()


@pytest.fixture
def kourou_async_sent(kourou_broker: Cluster) -> AsyncSent:
    """`kourou_sent` for async tests: its methods are awaited."""
    return kourou_broker.async_sent()


@pytest.fixture
def kourou_clock(kourou_broker: Cluster) -> ClusterClock:
    """The clock of `kourou_broker` and its clients; it can be advanced but never goes back."""
    return kourou_broker.clock


@pytest.fixture
def kourou_chaos(kourou_broker: Cluster) -> Iterator[Chaos]:
    """Fault injection for `kourou_broker`; all faults end after the test."""
    yield kourou_broker.chaos
    kourou_broker.chaos.repair()


def _named_after(request: pytest.FixtureRequest) -> str:
    from kourou.testing.cluster import unique_name

    node: Any = request.node
    return unique_name(str(node.name))
