"""One cluster and one console for all tests of administration: they use names of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from kourou.errors import Unavailable
from kourou.model.topic import MessageQueue
from kourou.testing.cluster import Cluster, unique_name
from kourou_console.metrics.sampler import Sampler
from kourou_rigs.console import ConsoleHere


@dataclass(frozen=True)
class Suite:
    """Two brokers, and a console over them."""

    cluster: Cluster
    console: ConsoleHere

    def topic(self, **options: int) -> str:
        """A topic of two queues at each broker."""
        return self.cluster.create_topic(**{"queues": 2, **options})

    def group(self) -> str:
        """A group that both brokers have."""
        name = unique_name("group")
        assert self.console.put(f"/v1/groups/{name}", json={}).status == 200
        return name

    def send(self, topic: str, count: int) -> None:
        """So many messages."""
        with self.cluster.client() as mq:
            for number in range(count):
                mq.send(topic, f"{number}")

    @contextmanager
    def consuming(self, topic: str, group: str) -> Iterator[None]:
        """One more message; a member of the group is there, and has got one."""
        with self.cluster.client(group) as mq:
            mq.send(topic, "one")
            with mq.subscribe(topic) as messages:
                assert next(iter(messages)).body
                yield

    def look(self) -> None:
        """Take a sample of all brokers now."""
        self.console.run(self.console.gateway.part(Sampler).look())

    def history(self, kind: str, name: str, **query: object) -> list[dict[str, Any]]:
        """What was decided about it, the newest first."""
        asked = {"kind": kind, "name": name, **query}
        items: list[dict[str, Any]] = self.console.get("/v1/history", query=asked).json["items"]
        return items


@pytest.fixture(scope="package")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Suite]:
    """Both, for the tests of this folder."""
    folder = tmp_path_factory.mktemp("suite")
    with Cluster(folder, brokers=2) as cluster, ConsoleHere(cluster) as console:
        yield Suite(cluster, console)
        assert not console.failures


@pytest.fixture
def half(suite: Suite, monkeypatch: pytest.MonkeyPatch) -> Suite:
    """The same while broker-b tells nobody about its topics and groups."""
    admin = suite.console.gateway.admin

    def deaf(ask: Any) -> Any:
        async def asked(**options: Any) -> Any:
            if options.get("broker") == "broker-b":
                raise Unavailable("it swaps")
            return await ask(**options)

        return asked

    monkeypatch.setattr(admin.topics, "all_configs", deaf(admin.topics.all_configs))
    monkeypatch.setattr(admin.groups, "configs", deaf(admin.groups.configs))
    return suite


@pytest.fixture
def silence(
    suite: Suite, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str], AbstractContextManager[None]]:
    """`with silence("broker-b"):` nobody hears from it where its queues begin and end."""
    reading = suite.console.gateway.admin.reading
    ask = reading.bounds

    @contextmanager
    def silent(broker: str) -> Iterator[None]:
        async def bounds(queue: MessageQueue) -> tuple[int, int]:
            if queue.broker_name == broker:
                raise Unavailable("it swaps")
            return await ask(queue)

        with monkeypatch.context() as patch:
            patch.setattr(reading, "bounds", bounds)
            yield

    return silent
