"""Subscriptions by tags."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kourou.errors import BadRequest, Code, Rejected
from kourou.filtering.tags import (
    check_expression,
    check_tag,
    parse_tags,
    selects_tag,
    wanted_codes,
)
from kourou.model.limits import SUBSCRIPTION_TAGS_MAX
from kourou.model.subscription import MATCH_ALL, TAG, Subscription
from kourou.protocol.record.hashes import java_hash


@pytest.mark.parametrize("expression", [None, "", "*", " * "])
def test_nothing_and_a_star_mean_every_message(expression: str | None):
    parsed = parse_tags("T", expression, version=9)
    assert parsed == Subscription("T", MATCH_ALL, TAG, version=9)
    assert wanted_codes(parsed) is None
    assert selects_tag(parsed, None)
    assert selects_tag(parsed, "any")


@pytest.mark.feature("F234")
def test_tags_become_codes_as_in_a_real_heartbeat():
    parsed = parse_tags("TopicA", "TagA || TagB || TagT")
    assert parsed.tags == {"TagA", "TagB", "TagT"}
    # The code set of a captured Java heartbeat with this expression.
    assert wanted_codes(parsed) == {2598919, 2598938, 2598920}


@pytest.mark.parametrize("expression", ["a||b", " a || b ", "a||b||", "||a||||b", "b || a || b"])
def test_blanks_and_empty_parts_do_not_matter(expression: str):
    parsed = parse_tags("T", expression)
    assert parsed.tags == {"a", "b"}
    assert parsed.codes == {97, 98}


@pytest.mark.feature("F235")
def test_the_exact_test_tells_colliding_tags_apart():
    assert java_hash("Aa") == java_hash("BB")
    parsed = parse_tags("T", "Aa")
    assert wanted_codes(parsed) == {java_hash("BB")}
    assert selects_tag(parsed, "Aa")
    assert not selects_tag(parsed, "BB")
    assert not selects_tag(parsed, None)


@pytest.mark.parametrize(
    "expression",
    ["||", "|| ||", "||".join(f"t{i}" for i in range(SUBSCRIPTION_TAGS_MAX + 1)), "x" * 20_000],
)
def test_what_names_no_tag_or_too_many_is_refused(expression: str):
    with pytest.raises(Rejected) as refused:
        parse_tags("T", expression)
    assert refused.value.wire_code == Code.SUBSCRIPTION_PARSE_FAILED


def test_a_bad_topic_is_refused():
    with pytest.raises(BadRequest):
        parse_tags("a/b", "*")


@pytest.mark.fuzz
@given(st.text(max_size=40))
def test_any_text_is_parsed_or_refused(text: str):
    try:
        parsed = parse_tags("T", text)
    except Rejected:
        assert not [part for part in text.split("||") if part.strip()]
        return
    assert parsed.codes == {java_hash(tag) for tag in parsed.tags}
    assert parse_tags("T", parsed.expression) == parsed


@pytest.mark.parametrize(
    "expression",
    [
        "paid &&",
        "a && b",
        "a&&b",
        "a | b",
        "a|b",
        "a |||b",
        "a || *",
        "* || a || b",
        "a\tb",
        "a\x01",
    ],
)
def test_what_nobody_means_is_refused_of_our_clients(expression: str):
    with pytest.raises(BadRequest, match="the tag expression"):
        check_expression(expression)
    parse_tags("T", expression)  # a broker takes it, as RocketMQ's does


@pytest.mark.parametrize(
    "expression",
    [None, "", "  ", "*", " * ", "* || *", "a", "a||b", "||a||||b||", "a b", "R&D || a,b", "主题"],
)
def test_what_rocketmq_gives_a_meaning_is_taken(expression: str | None):
    check_expression(expression)


@given(st.text(alphabet="ab |&*\t", max_size=12))
def test_a_tag_that_may_be_sent_is_found_under_its_name_or_refused_there(tag: str):
    try:
        check_tag(tag)
        check_expression(tag)
    except BadRequest:
        return
    if tag and tag != MATCH_ALL:
        assert selects_tag(parse_tags("T", tag), tag)
        assert parse_tags("T", tag).tags == {tag}
