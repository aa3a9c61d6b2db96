"""What follows from the store's keys."""

from __future__ import annotations

from pathlib import Path

import pytest

from kourou.errors import ConfigError
from kourou_broker.config import BrokerSettings
from kourou_broker.store_keys import FlushDiskType


def test_flushing() -> None:
    assert not BrokerSettings().sync_flush
    assert BrokerSettings(flush_disk_type=FlushDiskType.SYNC_FLUSH).sync_flush


@pytest.mark.feature("F122", "F340")
def test_hours() -> None:
    assert BrokerSettings().delete_hours == (4,)
    assert BrokerSettings(delete_when="02;14").delete_hours == (2, 14)


@pytest.mark.feature("F336", "F337", "F338", "F339")
def test_paths_below_the_root_are_accepted_and_others_refused(tmp_path: Path) -> None:
    names = {
        "consume_queue_path": "consumequeue",
        "index_path": "index",
        "checkpoint_path": "checkpoint",
        "abort_path": "abort",
    }
    for attribute, name in names.items():
        keys = {"store_root": tmp_path, attribute: tmp_path / name}
        BrokerSettings(**keys)  # type: ignore[arg-type]  # a test's shorthand
        keys[attribute] = tmp_path / "other" / name
        with pytest.raises(ConfigError, match="outside the store's directory"):
            BrokerSettings(**keys)  # type: ignore[arg-type]  # a test's shorthand
