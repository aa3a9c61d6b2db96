"""The nouns of filters."""

from __future__ import annotations

import pytest

from kourou.errors import BadRequest
from kourou.model.filter import FilterState, FilterVersion, check_filter_name
from kourou.model.limits import FILTER_NAME_LENGTH_MAX


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
