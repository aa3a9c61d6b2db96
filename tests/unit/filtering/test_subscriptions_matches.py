"""One question over every kind of subscription."""

from __future__ import annotations

import pytest

from kourou.filtering.subscriptions import selects
from kourou.filtering.tags import parse_tags
from kourou.model.subscription import SQL92, Subscription


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
