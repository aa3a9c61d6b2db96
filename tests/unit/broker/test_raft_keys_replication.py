"""What a broker is told about copies of its log."""

from __future__ import annotations

import pytest

from kourou.broker.raft_keys import FLUSHED, WRITTEN, ReplicationKeys
from kourou.settings.declaration import settings_of


@pytest.mark.feature("F128")
def test_the_defaults_are_rocketmqs_where_it_has_any() -> None:
    keys = ReplicationKeys()
    assert keys.replication_enabled
    assert keys.replication_port is None
    assert (keys.fallbehind_max_bytes, keys.slave_timeout_ms) == (268_435_456, 3_000)
    assert keys.ack_on is None


def test_a_copy_counts_in_one_of_two_ways() -> None:
    found = {one.key: one for one in settings_of(ReplicationKeys)}
    assert set(found["haAckOn"].choices) == {WRITTEN, FLUSHED}
