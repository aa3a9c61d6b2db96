"""What a listener makes of a progress report."""

from __future__ import annotations

import pytest

from kourou.model.topic import MessageQueue
from kourou_spark_etl.source.progress import offsets_in


@pytest.mark.parametrize("text", [None, "", "17", '{"logOffset":3}', '{"a":{"0":5}}', "{"])
def test_offsets_of_other_sources_are_passed_over(text: str | None) -> None:
    assert offsets_in(text) is None


def test_offsets_of_ours() -> None:
    assert offsets_in('{"orders":{"broker-a":{"0":5}}}') == {
        MessageQueue("orders", "broker-a", 0): 5
    }
