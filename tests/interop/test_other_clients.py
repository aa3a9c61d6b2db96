"""Apache's C++ client of 2019 and Alibaba's JavaScript client, unchanged, on our servers.

And on RocketMQ's, which proves the test. They write what Java does not: numbers where Java writes
texts, settings by their ordinals, bodies of an older layout. What each scenario does is in
cpp/scenarios.py and node/scenarios.js.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from tests.interop import rows

OTHERS = ("cpp", "node")


def cases() -> Iterator[Any]:
    """Every scenario on our server; on RocketMQ's in slow runs only."""
    for client in OTHERS:
        for name in rows.scenarios(client):
            yield pytest.param("kourou", client, name, id=f"kourou-{client}-{name}")
            slow = [pytest.mark.slow]
            yield pytest.param("rocketmq", client, name, marks=slow, id=f"rocketmq-{client}-{name}")


@pytest.mark.parametrize(("server", "client", "scenario"), list(cases()))
def test_a_client_of_others_does_as_ever(
    run_client: Callable[[str, str], Mapping[str, Any]], server: str, client: str, scenario: str
) -> None:
    line = run_client(client, server)[scenario]
    assert line["ok"], line["detail"]
    assert line["counts"], "it counted nothing: what did it try?"
