"""Connections and name servers for parts of a session that tests make themselves."""

from __future__ import annotations

import random

import pytest

from kourou.client.session.connections import Connections
from kourou.client.session.discovery import NameServers
from kourou.client.session.name_servers import NameServerChoice


@pytest.fixture
async def choose(cluster):
    """Makes choices of name servers, whose connections end with the test."""
    made = []

    def make(addresses=("127.0.0.1:19876",), url="", fetch=None, interval_ms=60_000, seed=1):
        choice = NameServerChoice(
            NameServers(tuple(addresses), "test", url),
            Connections(cluster.dial, lambda *_: None),
            timeout_ms=100,
            list_interval_ms=interval_ms,
            chance=random.Random(seed),
            fetch=fetch,
        )
        made.append(choice)
        return choice

    yield make
    for choice in made:
        choice.close()
        choice._connections.close()
