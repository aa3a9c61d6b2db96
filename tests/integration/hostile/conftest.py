"""A broker under attack, and a well-behaved client that must be served after it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kourou_rigs.attacked import Attacked, broker_in, broker_with_users


@pytest.fixture
async def attacked(tmp_path: Path) -> AsyncIterator[Attacked]:
    """A broker without users: everybody may send every request."""
    async with broker_in(tmp_path) as one:
        yield one


@pytest.fixture
async def secured(tmp_path: Path) -> AsyncIterator[Attacked]:
    """A broker with an administrator, and `till` who uses topics that begin with `orders`."""
    async with broker_with_users(tmp_path) as one:
        yield one
