"""A cluster for all tests of a file, and gateways in this process."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack

import pytest

from kourou.client.session import io_thread
from kourou.clock import Clock
from kourou.testing.cluster import Cluster, unique_name
from kourou_console.gateway import Gateway


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("leases")) as one:
        yield one


@pytest.fixture
def group() -> str:
    return unique_name("group")


@pytest.fixture
def topic(cluster: Cluster) -> str:
    return cluster.create_topic(queues=1)


@pytest.fixture
async def make_gateway(cluster: Cluster) -> AsyncIterator[Callable[[], Awaitable[Gateway]]]:
    async with AsyncExitStack() as stack:

        async def make() -> Gateway:
            client = await stack.enter_async_context(cluster.async_client())
            clock: Clock = io_thread.clock_at(cluster.address)
            gateway = Gateway(client, clock)
            stack.push_async_callback(gateway.close)
            return gateway

        yield make


@pytest.fixture
async def gateway(make_gateway: Callable[[], Awaitable[Gateway]]) -> Gateway:
    return await make_gateway()
