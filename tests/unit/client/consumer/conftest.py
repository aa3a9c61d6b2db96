"""A broker with one queue for tests of consumers."""

from __future__ import annotations

import pytest


@pytest.fixture
def one_queue(broker, cluster):
    """A broker whose topic T and the retry topic of group g have one queue each."""
    cluster.topics |= {"T": (1, 1), "%RETRY%g": (1, 1)}
    return broker
