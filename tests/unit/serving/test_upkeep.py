"""What is told of a core to whoever works on the open store."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

from kourou.engine.roles.quorum_roles import QuorumLeaderRole
from kourou.serving.upkeep import Upkeep
from kourou_rigs.engine import Engine
from kourou_rigs.quorum import GivenQuorum


def test_history_has_nothing_that_another_leader_may_take_back() -> None:
    quorum = GivenQuorum(leader="n0")
    engine = Engine(role=QuorumLeaderRole(7, quorum))
    told: list[Callable[[], int]] = []
    upkeep = Upkeep.__new__(Upkeep)
    upkeep.projector = SimpleNamespace(attach=lambda _control, safe: told.append(safe))  # type: ignore[assignment]  # as much of one as is asked
    upkeep.mirror = SimpleNamespace(renew=lambda: None)  # type: ignore[assignment]  # likewise
    flushed = engine.core.desks.confirmations.flushed
    upkeep.store = SimpleNamespace(flushed=flushed)  # type: ignore[assignment]  # likewise
    upkeep.serve(engine.core.desks)
    (safe,) = told
    assert flushed > 0 == safe()
    quorum.confirm(engine)
    assert safe() == flushed
