"""What an operation needs for a user, before brokers decide."""

from __future__ import annotations

import inspect

import pytest

from kourou.access.model import Action
from kourou.operations.catalogue import Right
from kourou_console.operation import THE_CLUSTER, Operation
from kourou_console.operations import OPERATIONS


def test_without_a_declaration_reading_needs_get_and_a_change_update() -> None:
    by_name = {one.name: one for one in OPERATIONS}
    assert by_name["overview"].needed == ((Action.GET, THE_CLUSTER),)
    assert by_name["put_topic"].needed == ((Action.UPDATE, THE_CLUSTER),)
    assert by_name["put_name_server_value"].needed == ((Action.UPDATE, THE_CLUSTER),)
    assert by_name["send_message"].needed == ()
    assert by_name["spark_rows"].needed == ((Action.SUB, "Topic:*"),)


@pytest.mark.parametrize("one", OPERATIONS, ids=lambda one: one.name)
def test_what_the_console_has_read_itself_needs_a_right(one: Operation) -> None:
    source = inspect.getsource(one.handle)
    if "Sampler" in source or "name_servers" in source or "spark_etl_address" in source:
        assert one.needed or (one.right is Right.READ and one.name == "who_am_i")
