"""A token names one lease of one life of one gateway, and cannot be made up."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kourou_console.http.responses import HttpError
from kourou_console.leases.leases import LeaseTokens


def test_a_token_is_read_where_it_was_made():
    tokens = LeaseTokens()
    assert [tokens.read(tokens.make(number)) for number in (1, 2**40)] == [1, 2**40]
    assert len({tokens.make(number) for number in range(100)}) == 100


def test_one_of_another_gateway_is_told_so():
    with pytest.raises(HttpError, match="another gateway"):
        LeaseTokens().read(LeaseTokens().make(1))


@pytest.mark.parametrize(
    "text", ["", "x", "é" * 35, "=" * 35, "A" * 34 + "!", "A" * 400, "\x00" * 35]
)
def test_what_is_no_token_is_refused(text: str):
    with pytest.raises(HttpError) as refused:
        LeaseTokens().read(text)
    assert refused.value.status == 404
    assert refused.value.hint


def test_a_changed_token_is_refused():
    tokens = LeaseTokens()
    token = tokens.make(7)
    for at in range(8, 32):
        changed = token[:at] + ("A" if token[at] != "A" else "B") + token[at + 1 :]
        with pytest.raises(HttpError, match="never issued") as refused:
            tokens.read(changed)
        assert refused.value.hint


@pytest.mark.fuzz
@given(st.text(max_size=40) | st.text("AZaz09-_", min_size=35, max_size=35))
def test_any_text_is_no_token_of_a_gateway_that_made_none(text: str) -> None:
    with pytest.raises(HttpError):
        LeaseTokens().read(text)
