"""Operators' clients."""

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
