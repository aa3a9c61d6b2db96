"""What follows from the store's keys."""

from __future__ import annotations

from pathlib import Path

import pytest

from kourou.broker.config import BrokerSettings, load_broker_settings
from kourou.broker.part_settings import store_settings_of
from kourou.errors import ConfigError
from kourou.service.command_line import parse_arguments
from kourou.store.paths import StorePaths


def test_every_path_reaches_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    store = store_settings_of(
        load_broker_settings(parse_arguments("kourou broker", "", []), {}).settings
    )
    assert store.paths == StorePaths.under(tmp_path / "store")
    keys = ("storePathCommitLog", "storePathConsumeQueue", "storePathIndex", "storeCheckpoint")
    text = "".join(f"{key}={tmp_path}/{key}\n" for key in (*keys, "abortFile"))
    file = tmp_path / "broker.conf"
    file.write_text(f"storePathRootDir={tmp_path}/s\n{text}")
    arguments = parse_arguments("kourou broker", "", ["-c", str(file)])
    paths = store_settings_of(load_broker_settings(arguments, {}).settings).paths
    log, queues, index, checkpoint = (tmp_path / key for key in keys)
    assert (paths.root, paths.commit_log, paths.consume_queue) == (tmp_path / "s", log, queues)
    assert (paths.index, paths.checkpoint) == (index, checkpoint)
    assert paths.abort == tmp_path / "abortFile"


@pytest.mark.parametrize(
    ("key", "path"),
    [
        ("commit_log_path", "store/consumequeue"),
        ("consume_queue_path", "store"),
        ("index_path", "store/commitlog/index"),
        ("checkpoint_path", "store/index/checkpoint"),
        ("abort_path", "store/checkpoint"),
    ],
)
def test_a_path_in_another_ones_directory_is_refused(tmp_path: Path, key: str, path: str) -> None:
    with pytest.raises(ConfigError, match="use a separate path for each of them"):
        BrokerSettings(**{"store_root": tmp_path / "store", key: tmp_path / path})  # type: ignore[arg-type]  # a test's shorthand
