"""Client IDs are unique for consumers of a group."""

from __future__ import annotations

import pytest

from kourou.client.client_core import client_id
from kourou.errors import BadRequest


@pytest.mark.feature("F285")
def test_the_default_instance_is_unique_in_and_between_processes():
    ids = {client_id("1.2.3.4", "DEFAULT", pid=p, number=n) for p in (1, 2) for n in (1, 2)}
    assert len(ids) == 4
    assert "1.2.3.4@1#2" in ids


def test_a_unit_name_is_appended():
    assert client_id("1.2.3.4", "x", pid=1, number=1, unit_name="u") == "1.2.3.4@x@u"


def test_an_id_has_a_limit():
    with pytest.raises(BadRequest):
        client_id("1.2.3.4", "x" * 300, pid=1, number=1)
