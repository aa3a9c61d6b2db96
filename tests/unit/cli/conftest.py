"""Fixtures of the command line's tests."""

from __future__ import annotations

import pytest

from kourou_rigs.wire_cluster import WireCluster


@pytest.fixture
def cluster() -> WireCluster:
    """Two masters with the broker's own core, `broker-a` and `broker-b`."""
    found = WireCluster()
    found.broker("broker-a")
    found.broker("broker-b")
    return found
