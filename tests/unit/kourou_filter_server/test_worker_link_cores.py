"""Which cores workers keep to: one is left to everybody else, unless somebody says otherwise."""

from __future__ import annotations

import pytest

from kourou.errors import ConfigError
from kourou.service.os_processes import CORE_MAX
from kourou_filter_server.worker_link import cores_of_workers


@pytest.mark.parametrize(
    ("there", "theirs"),
    [({0}, set()), ({0, 1}, {1}), ({2, 3, 7}, {3, 7}), (set(range(8)), set(range(1, 8)))],
)
def test_one_core_is_left_to_others_where_there_are_two(there: set[int], theirs: set[int]) -> None:
    assert cores_of_workers(None, there) == theirs


def test_all_of_them_are_no_restriction() -> None:
    assert cores_of_workers(" all ", {0, 1}) == frozenset()


def test_a_list_of_cores_is_used_whole_or_rejected() -> None:
    assert cores_of_workers("0, 2-3", {0, 1, 2, 3}) == {0, 2, 3}
    with pytest.raises(ConfigError, match="names 2, and this process may use 0,1,3"):
        cores_of_workers("0, 2-3", {0, 1, 3})


@pytest.mark.parametrize(
    "text", ["", ",", "1,", "-1", "2-1", "1-2-3", "1 2", "x", "0x1", "1.5", f"0-{CORE_MAX + 1}"]
)
def test_what_is_no_list_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="is not a list of cores"):
        cores_of_workers(text, {0, 1})


def test_a_list_without_any_core_of_this_process_is_refused() -> None:
    with pytest.raises(ConfigError, match="names 2,3,4,5, and this process may use 0,1"):
        cores_of_workers("2-5", {0, 1})
