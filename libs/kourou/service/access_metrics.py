"""The metrics of access control that several services have: whether one is open, what it decided.

State: none.
"""

from __future__ import annotations

from kourou.authorization.request_gate import DecisionCounts, decision_counts
from kourou.telemetry.metrics import Family, Labels


def open_family(base: Labels, open_because: str) -> Family:
    """Return whether a service handles requests of everybody; "" stands for no."""
    return Family.gauge("kourou_access_open", samples=[(base, int(open_because != ""))])


def access_families(base: Labels, gate: DecisionCounts, open_because: str) -> tuple[Family, ...]:
    """Return the same of a service with a gate, and the counts of its decisions."""
    decided = decision_counts(base, gate)
    return (
        open_family(base, open_because),
        Family.counter("kourou_access_decisions_total", samples=decided),
    )
