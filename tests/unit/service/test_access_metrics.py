"""Whether a service is open, and what it decided, as metrics."""

from __future__ import annotations

from kourou.authorization.request_gate import PublishedGate
from kourou.service.access_metrics import access_families, open_family
from kourou.telemetry.metrics import expose


def test_a_service_shows_whether_it_is_open_and_a_gate_its_decisions() -> None:
    page = expose([open_family({"node_type": "n"}, "")]).decode()
    assert 'kourou_access_open{node_type="n"} 0.0\n' in page
    gate = PublishedGate(None)
    gate.allowed, gate.refused = 3, 2
    page = expose(access_families({"node_type": "n"}, gate, gate.open_because)).decode()
    assert 'kourou_access_open{node_type="n"} 1.0\n' in page
    assert 'kourou_access_decisions_total{decision="allowed",node_type="n"} 3.0\n' in page
    assert 'kourou_access_decisions_total{decision="refused",node_type="n"} 2.0\n' in page
