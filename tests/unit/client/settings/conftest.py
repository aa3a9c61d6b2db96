"""A cluster whose brokers have the real core: settings are proved against what ships."""

from __future__ import annotations

import pytest

from kourou_rigs.wire_cluster import WireCluster
from kourou_rigs.wire_core import CoreBroker


@pytest.fixture
def cluster() -> WireCluster:
    return WireCluster(CoreBroker)
