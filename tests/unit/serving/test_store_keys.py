"""What follows from the store's keys."""

from __future__ import annotations

from pathlib import Path

import pytest

from kourou.errors import ConfigError
from kourou.service.command_line import parse_arguments
from kourou.serving.config import BrokerSettings, load_broker_settings
from kourou.serving.store_keys import FlushDiskType
from kourou.serving.wiring import store_settings_of
from kourou.store.paths import StorePaths


def test_flushing() -> None:
    assert not BrokerSettings().sync_flush
    assert BrokerSettings(flush_disk_type=FlushDiskType.SYNC_FLUSH).sync_flush


@pytest.mark.feature("F122", "F340")
def test_hours() -> None:
    assert BrokerSettings().delete_hours == (4,)
    assert BrokerSettings(delete_when="02;14").delete_hours == (2, 14)


@pytest.mark.feature("F059")
def test_the_store_is_in_the_home_directory_unless_it_is_told_where(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    arguments = parse_arguments("kourou broker", "", [])
    store = store_settings_of(load_broker_settings(arguments, {}).settings)
    paths = StorePaths.under(store.root, store.commit_log)
    assert paths.root == tmp_path / "store"
    assert paths.commit_log == tmp_path / "store" / "commitlog"
    file = tmp_path / "broker.conf"
    file.write_text(f"storePathRootDir={tmp_path}/s\nstorePathCommitLog={tmp_path}/fast\n")
    arguments = parse_arguments("kourou broker", "", ["-c", str(file)])
    store = store_settings_of(load_broker_settings(arguments, {}).settings)
    paths = StorePaths.under(store.root, store.commit_log)
    assert (paths.root, paths.commit_log) == (tmp_path / "s", tmp_path / "fast")


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
