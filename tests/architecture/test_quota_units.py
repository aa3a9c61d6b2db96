"""`QuotaUnit` declares what can be limited: every other list of units agrees with it."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

import kourou_console
from kourou.cli.quotas import set_quota
from kourou.client.admin.api import QuotasApi
from kourou.model.quota import Quota, QuotaUnit
from kourou.protocol.messages.quotas import SetQuota
from kourou_console.api.cluster import QuotaBody, QuotaView

_PAGE = Path(kourou_console.__file__).parent / "static/js/pages/cluster.js"
_COLUMNS = _PAGE.read_text().partition('label="Quotas"')[2].partition("]}")[0]


@pytest.mark.parametrize(
    "names",
    [
        Quota.__struct_fields__,
        SetQuota.__struct_fields__,
        QuotaView.__struct_fields__,
        QuotaBody.__struct_fields__,
        tuple(inspect.signature(QuotasApi.set).parameters),
        tuple(inspect.signature(set_quota).parameters),
        tuple(re.findall(r'key: "(\w+)"', _COLUMNS)),
    ],
    ids=["model", "request", "response", "body", "client", "command", "page"],
)
def test_units_are_in_the_order_of_their_declaration(names: tuple[str, ...]) -> None:
    others = {"kind", "name", "reason", "brokers", "self", "client", "unlimited"}
    assert [name for name in names if name not in others] == [unit.value for unit in QuotaUnit]
