"""The list of delay levels."""

from __future__ import annotations

from typing import Any

import pytest

from kourou.errors import BadRequest, ConfigError
from kourou.model.filter import FilterState, FilterVersion, check_filter_name
from kourou.model.limits import FILTER_NAME_LENGTH_MAX, GROUP_LENGTH_MAX, TOPIC_LENGTH_MAX
from kourou.model.message import DELAY_LEVELS, DELAY_LEVELS_MS, delay_of, parse_delay_levels
from kourou.model.names import check_group, check_topic
from kourou.model.transaction import TransactionState, state_of


@pytest.mark.feature("F247", "F353")
def test_rocketmq_s_levels() -> None:
    seconds = [1, 5, 10, 30, *(60 * n for n in (*range(1, 11), 20, 30)), 3600, 7200]
    assert parse_delay_levels(DELAY_LEVELS) == tuple(1_000 * one for one in seconds)
    assert len(DELAY_LEVELS_MS) == 18


@pytest.mark.feature("F216")
def test_the_gaps_of_16_retries_are_the_levels_from_3_on() -> None:
    gaps = "10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
    assert DELAY_LEVELS_MS[2:] == parse_delay_levels(gaps)
    assert sum(DELAY_LEVELS_MS[2:]) == 1_000 * (4 * 3600 + 45 * 60 + 40)


def test_a_level_above_the_highest_is_the_highest() -> None:
    assert [delay_of(level, (1, 7)) for level in (1, 2, 3, 99)] == [1, 7, 7, 7]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("1s 5x 3m", "level 2 is '5x'"),
        ("s", "level 1"),
        ("1s -5s", "level 2"),
        ("1.5s", "level 1"),
        ("1234567s", "level 1"),
        ("", "no level"),
        ("1s " * 1_001, "at most 1000"),
    ],
)
def test_what_cannot_be_read_is_named(text, problem) -> None:
    with pytest.raises(ConfigError, match=problem):
        parse_delay_levels(text)


# -- the nouns of filters --------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["late", "_x", "com.acme.Late$Inner", "9-lives", "a" * 127])
def test_names_that_a_filter_may_have(name: str) -> None:
    assert check_filter_name(name) == name


@pytest.mark.parametrize(
    "name", ["", ".late", "-x", "$", "a b", "a/b", "ä", "a\n", "a" * (FILTER_NAME_LENGTH_MAX + 1)]
)
def test_names_that_it_may_not_have(name: str) -> None:
    with pytest.raises(BadRequest, match="cannot be named"):
        check_filter_name(name)


def test_versions_are_found_by_number_and_returned_without_their_source() -> None:
    versions = tuple(FilterVersion(n, "", "", "", 1, 3, "src", n) for n in (2, 5))
    one = FilterState("g", "f", versions, active=5)
    assert (one.key, one.newest) == (("g", "f"), 5)
    assert one.version(2) is versions[0]
    assert one.version(3) is None
    assert FilterState("g", "f").newest is None
    bare = one.bare()
    assert [each.source for each in bare.versions] == [None, None]
    assert [each.enabled_ms for each in bare.versions] == [2, 5]
    assert bare.active == 5


# -- what cannot be a name is refused in words -----------------------------------------------------


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


# -- what an application's words for an outcome mean -----------------------------------------------


@pytest.mark.parametrize(
    ("answer", "state"),
    [
        (True, TransactionState.COMMIT),
        (False, TransactionState.ROLLBACK),
        (None, TransactionState.UNKNOWN),
        *((state, state) for state in TransactionState),
    ],
)
def test_a_state_or_a_short_word_for_it(answer: object, state: TransactionState) -> None:
    assert state_of(answer) is state


@pytest.mark.parametrize("answer", [1, 0, "", "COMMIT_MESSAGE", [], object()])
def test_nothing_else_decides_about_a_message(answer: object) -> None:
    with pytest.raises(BadRequest, match="outcome"):
        state_of(answer)
