"""Operators' clients, and brokers that answer as a test says."""

from __future__ import annotations

import pytest


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

        def intercept(request):
            found = table.get(type(request))
            if found is not None:
                seen.append(request)
            return found(request) if callable(found) else found

        broker.intercept = intercept
        return seen

    return answer
