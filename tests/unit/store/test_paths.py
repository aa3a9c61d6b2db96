from __future__ import annotations

from pathlib import Path

import pytest

from kourou.errors import BadRequest
from kourou.store.paths import StorePaths, file_name, start_of

PATHS = StorePaths.under(Path("/data/store"))


@pytest.mark.feature("F064")
def test_files_are_named_by_their_first_byte_in_twenty_digits() -> None:
    assert PATHS.segment(1 << 30).name == "00000000001073741824"
    assert start_of(file_name(5_368_709_120)) == 5_368_709_120


@pytest.mark.parametrize(
    "name", ["", "1", "0000000000000000000a", "-0000000000000000001", "٠" * 20]
)
def test_other_names_are_no_files_of_ours(name: str) -> None:
    assert start_of(name) is None


@pytest.mark.feature("F060", "F062")
def test_the_tree_is_rocketmqs() -> None:
    assert [str(path.relative_to(PATHS.root)) for path in PATHS.directories[1:]] == [
        "commitlog",
        "consumequeue",
        "index",
        "config",
        "kourou",
    ]
    assert PATHS.queue("%RETRY%group", 3) == Path("/data/store/consumequeue/%RETRY%group/3")
    assert PATHS.abort == Path("/data/store/abort")


def test_the_log_may_lie_elsewhere() -> None:
    paths = StorePaths.under(Path("/data/store"), commit_log=Path("/fast/log"))
    assert paths.segment(0).parent == Path("/fast/log")
    assert paths.checkpoint == Path("/data/store/checkpoint")


@pytest.mark.parametrize("topic", ["", "..", "a/b", "a\0b", "x" * 128, "a.b", "topic "])
def test_a_name_that_would_leave_the_directory_is_refused(topic: str) -> None:
    with pytest.raises(BadRequest):
        PATHS.queue(topic, 0)


def test_a_negative_queue_is_refused() -> None:
    with pytest.raises(BadRequest, match="-1"):
        PATHS.queue("T", -1)
