"""The console asks the cluster again and again; at its start it waits for brokers a moment."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from kourou.errors import Unavailable
from kourou_console import app
from kourou_console.app import ClusterWatch
from kourou_console.gateway import Gateway

NO_BROKER = SimpleNamespace(clusters={}, brokers={})
BROKER = SimpleNamespace(clusters={"DefaultCluster": ["broker-a"]}, brokers={"broker-a": 1})


class FakeGateway:
    """Plays the gateway: gives one answer after the other, the last one for ever."""

    def __init__(self, *answers: Any) -> None:
        self._answers = list(answers)
        self.cluster_name: str | None = None
        self.asked = 0
        self.admin = SimpleNamespace(cluster=self)

    async def info(self) -> Any:
        self.asked += 1
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


async def started(gateway: FakeGateway, wait_s: float) -> str:
    watching = ClusterWatch(cast("Gateway", gateway))
    await watching.start(wait_s)
    trouble = watching.trouble
    await watching.stop()
    return trouble


async def test_it_waits_for_a_broker_that_starts_together_with_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(app, "STARTING_PERIOD_S", 0.0)
    gateway = FakeGateway(Unavailable("no name server"), NO_BROKER, NO_BROKER, BROKER)
    assert await started(gateway, 60.0) == ""
    assert (gateway.asked, gateway.cluster_name) == (4, "DefaultCluster")


async def test_it_does_not_wait_for_ever() -> None:
    gateway = FakeGateway(NO_BROKER)
    assert await started(gateway, 0.0) == "no broker is registered at the name servers"
    assert gateway.asked == 1
