"""Names that differ only in case."""

from __future__ import annotations

from kourou.engine.admin.config_table import FoldedNames


def test_a_name_clashes_with_another_spelling_and_never_with_itself():
    names = FoldedNames()
    names.add("Orders")
    assert names.clash("orders") == "Orders"
    assert names.clash("Orders") is None
    assert names.clash("order") is None


def test_the_last_spelling_to_go_frees_the_name():
    names = FoldedNames()
    names.add("Orders")
    names.add("ORDERS")
    names.remove("Orders")
    assert names.clash("orders") == "ORDERS"
    names.remove("ORDERS")
    assert names.clash("orders") is None


def test_a_copy_goes_its_own_way():
    names = FoldedNames()
    names.add("Orders")
    copy = names.copy()
    names.remove("Orders")
    assert copy.clash("orders") == "Orders"
