"""Lists of processor cores, and how they are divided."""

from __future__ import annotations

import os

import pytest

from kourou.errors import ConfigError
from kourou.service.os_processes import (
    CORE_MAX,
    cores_left,
    cores_named,
    keep_process_to,
    read_cores,
)
from kourou_rigs.forked import in_child


@pytest.mark.parametrize(
    ("text", "cores"),
    [("3", {3}), ("1,4-7", {1, 4, 5, 6, 7}), (" 0 , 2 - 2 ", {0, 2}), (f"{CORE_MAX}", {CORE_MAX})],
)
def test_a_list_of_cores(text: str, cores: set[int]) -> None:
    assert read_cores("key", text) == cores


@pytest.mark.parametrize(
    "text", ["", ",", "1,", "-1", "2-1", "1-2-3", "1 2", "x", "0x1", "1.5", f"0-{CORE_MAX + 1}"]
)
def test_what_is_no_list_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="is not a list of cores"):
        cores_named("processCores", text, {0, 1})


@pytest.mark.parametrize("text", ["7", "0,7", "0-1,7"])
def test_a_core_that_is_not_there_is_named_and_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="names 7, and this process may use 0,1"):
        cores_named("processCores", text, {0, 1})


@pytest.mark.parametrize(("there", "left"), [({0, 1}, {0}), ({3, 5, 7}, {3}), ({2}, {2})])
def test_one_core_is_left_by_filters(there: set[int], left: set[int]) -> None:
    assert cores_left(there) == left


def test_a_process_keeps_to_its_cores() -> None:
    first = min(os.sched_getaffinity(0))

    def kept() -> object:
        keep_process_to(None)
        before = os.sched_getaffinity(0)
        keep_process_to(str(first))
        return before, os.sched_getaffinity(0)

    assert in_child(kept) == str((os.sched_getaffinity(0), {first}))
