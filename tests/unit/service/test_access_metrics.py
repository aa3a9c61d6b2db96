"""Whether a service is open, and what it decided, as metrics."""

from __future__ import annotations

import pytest

from kourou.authorization.request_gate import PublishedGate
from kourou.service.access_metrics import access_families, open_family
from kourou.telemetry.metrics import expose


@pytest.mark.parametrize(("reason", "value"), [("there are no users", "1.0"), ("", "0.0")])
def test_an_open_service_shows_a_one(reason: str, value: str) -> None:
    page = expose([open_family({"node_type": "n"}, reason)]).decode()
    assert f'kourou_access_open{{node_type="n"}} {value}\n' in page


def test_a_gate_shows_its_decisions_too() -> None:
    gate = PublishedGate(None)
    gate.allowed, gate.refused = 3, 2
    page = expose(access_families({"node_type": "n"}, gate, gate.open_because)).decode()
    assert 'kourou_access_open{node_type="n"} 1.0\n' in page
    assert 'kourou_access_decisions_total{decision="allowed",node_type="n"} 3.0\n' in page
    assert 'kourou_access_decisions_total{decision="refused",node_type="n"} 2.0\n' in page
