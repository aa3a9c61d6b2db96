"""Operators' clients, and brokers that answer as a test says."""

from __future__ import annotations

import pytest

from kourou_rigs.wire_faults import always


@pytest.fixture
async def mq(broker, producing):
    """A client of a cluster with one broker."""
    async with producing() as mq:
        yield mq


@pytest.fixture
async def admin(mq):
    """Its operations."""
    return mq.admin


@pytest.fixture
def answers():
    """Let a broker answer requests of these types: an Answer, or a function of the request.

    Gives a list to which such requests are added.
    """

    def answer(broker, table) -> list:
        seen = []

        def reply(request):
            seen.append(request)
            found = table[type(request)]
            return found(request) if callable(found) else found

        broker.faults.clear()
        for kind in table:
            broker.faults[kind] = always(reply)
        return seen

    return answer
