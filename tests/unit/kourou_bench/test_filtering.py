"""All ways of filtering ask the same, and one that loses messages has no figures."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from kourou.client.client import Client
from kourou.errors import Unavailable
from kourou.testing.cluster import Cluster
from kourou_bench import filtering
from kourou_bench.features import PASSES
from kourou_bench.filtering import PLAIN, bodies, by_body, by_properties, fill, read_all


class Seen:
    """What the filters look at of a message."""

    def __init__(self, properties: dict[str, str], body: Any) -> None:
        self.properties = properties
        self.json = body


@pytest.mark.parametrize("size", [50, 1_024, 1_025])
def test_bodies_have_the_size_and_one_in_a_hundred_passes(size: int) -> None:
    made = bodies(size)
    assert len(made) == PASSES
    assert {len(body) for body in made} <= {size, size + 1, *range(40, 60)}
    passed = Counter(by_body(Seen({}, json.loads(body))) for body in made)
    assert passed == {True: 1, False: PASSES - 1}


def test_the_property_filter_is_the_sql_one() -> None:
    seen = [Seen({"region": "north", "amount": str(n)}, None) for n in range(PASSES)]
    assert [by_properties(one) for one in seen] == [n > PASSES - 2 for n in range(PASSES)]
    assert not by_properties(Seen({"region": "south", "amount": "99"}, None))
    assert not by_properties(Seen({}, None))


async def test_a_way_that_loses_messages_has_no_figures(
    kourou_broker: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(filtering, "TOPIC", kourou_broker.create_topic())
    async with Client(kourou_broker.address) as client:
        await fill(client, 104, 100, 4)
    monkeypatch.setitem(filtering.WAYS, PLAIN, ("*", lambda message: message.offset > 0))
    with pytest.raises(Unavailable, match="100 messages came, 104 were due"):
        await read_all(kourou_broker.address, PLAIN, 32, 5, {})
