"""What a client says, and what a broker makes of it."""

from __future__ import annotations

import pytest

from kourou.errors import BadRequest, Code, Rejected
from kourou.filtering.subscriptions import (
    check_allowed,
    filter_of,
    heartbeat_subscription,
    parse_subscription,
    selects,
)
from kourou.filtering.tags import parse_tags
from kourou.model.subscription import SQL92, TAG, Subscription


@pytest.mark.parametrize("kind", [None, "", TAG])
def test_no_type_means_tags(kind: str | None):
    assert parse_subscription("T", "a", kind) == parse_tags("T", "a")
    assert heartbeat_subscription("T", "a", kind, version=3) == parse_tags("T", "a", version=3)


def test_a_filter_is_kept_as_it_was_said():
    wanted = Subscription("T", "a > 1", SQL92, version=3)
    assert heartbeat_subscription("T", "a > 1", SQL92, version=3) == wanted
    assert parse_subscription("T", "a > 1", SQL92).expression == "a > 1"
    assert filter_of(wanted).matches(b"a\x012")


def test_a_heartbeat_may_bring_a_filter_that_cannot_be_compiled():
    told = heartbeat_subscription("T", "a >", SQL92)
    for refuse in (lambda: parse_subscription("T", "a >", SQL92), lambda: filter_of(told)):
        with pytest.raises(Rejected, match="at position 4") as refused:
            refuse()
        assert refused.value.wire_code == Code.SUBSCRIPTION_PARSE_FAILED


@pytest.mark.parametrize("text", [None, ""])
def test_no_text_is_no_filter(text: str | None):
    with pytest.raises(Rejected, match="unexpected end"):
        parse_subscription("T", text, SQL92)


def test_an_unknown_type_is_found_when_it_is_needed():
    told = heartbeat_subscription("T", "whatever", "JEXL")
    with pytest.raises(Rejected, match="'JEXL' is unknown") as refused:
        filter_of(told)
    assert refused.value.wire_code == Code.SUBSCRIPTION_PARSE_FAILED


@pytest.mark.parametrize(
    ("text", "kind"), [("a", "X" * 100_000), ("a" * 20_000, SQL92), ("a" * 20_000, "JEXL")]
)
def test_what_is_too_long_is_not_even_kept(text: str, kind: str):
    with pytest.raises(Rejected) as refused:
        heartbeat_subscription("T", text, kind)
    assert refused.value.wire_code == Code.SUBSCRIPTION_PARSE_FAILED
    assert len(str(refused.value)) < 200


def test_a_bad_topic_is_refused():
    with pytest.raises(BadRequest):
        heartbeat_subscription("a/b", "a > 1", SQL92)


@pytest.mark.feature("F352")
def test_filters_may_be_switched_off():
    check_allowed(TAG, property_filter=False)
    check_allowed(SQL92, property_filter=True)
    with pytest.raises(Rejected) as refused:
        check_allowed(SQL92, property_filter=False)
    assert refused.value.wire_code == Code.SYSTEM_ERROR
    # RocketMQ's own words.
    assert "The broker does not support consumer to filter message by SQL92" in str(refused.value)


# -- one question over every kind of subscription --------------------------------------------------


@pytest.mark.parametrize(
    ("subscription", "properties", "answer"),
    [
        (parse_tags("T", "a || b"), {"TAGS": "b"}, True),
        (parse_tags("T", "a || b"), {"TAGS": "c"}, False),
        (parse_tags("T", "a || b"), {}, False),
        (parse_tags("T", "*"), {}, True),
        (Subscription("T", "n > 1", SQL92), {"n": "2"}, True),
        (Subscription("T", "n > 1", SQL92), {"n": "1"}, False),
        (Subscription("T", "n > 1", SQL92), {}, False),
        (Subscription("T", "n > > 1", SQL92), {"n": "1"}, True),
        (Subscription("T", "n > 1", "ELSE"), {"n": "1"}, True),
        (Subscription("T", "vip", class_filter_mode=True), {"TAGS": "c"}, None),
    ],
)
def test_who_wants_what(
    subscription: Subscription, properties: dict[str, str], answer: bool | None
) -> None:
    assert selects(subscription, properties) is answer
