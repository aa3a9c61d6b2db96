"""What cannot be a name is refused in words."""

from __future__ import annotations

from typing import Any

import pytest

from kourou.errors import BadRequest
from kourou.model.limits import GROUP_LENGTH_MAX, TOPIC_LENGTH_MAX
from kourou.model.names import check_group, check_topic


@pytest.mark.parametrize("name", ["a", "A-1_b", "%RETRY%till", "a|b", "x" * TOPIC_LENGTH_MAX])
def test_a_name(name: str) -> None:
    assert check_topic(name) == name


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("", "the topic is empty"),
        ("a b", "has a character outside"),
        ("a\n", "has a character outside"),
        ("\u00e9", "has a character outside"),
        ("x" * (TOPIC_LENGTH_MAX + 1), "128 characters long"),
        (5, "the topic is 5; it must be text"),
        (b"orders", "must be text"),
        (None, "must be text"),
    ],
)
def test_what_is_none(name: Any, words: str) -> None:
    with pytest.raises(BadRequest, match=words):
        check_topic(name)


def test_a_group_leaves_room_for_its_prefixes() -> None:
    with pytest.raises(BadRequest, match="the group is 121 characters long"):
        check_group("x" * (GROUP_LENGTH_MAX + 1))
