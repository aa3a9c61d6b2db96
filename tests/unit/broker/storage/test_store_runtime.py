"""What the projections of an open store learn from a new core."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

from kourou.broker.storage.store_runtime import StoreRuntime
from kourou.engine.roles.quorum import QuorumLeaderRole
from kourou_rigs.engine import Engine
from kourou_rigs.quorum import GivenQuorum


def test_history_has_nothing_that_another_leader_may_take_back() -> None:
    quorum = GivenQuorum(leader="n0")
    engine = Engine(role=QuorumLeaderRole(7, quorum))
    attached: list[Callable[[], int]] = []
    store_runtime = StoreRuntime.__new__(StoreRuntime)
    store_runtime.projector = SimpleNamespace(attach=lambda _control, safe: attached.append(safe))  # type: ignore[assignment]  # as much of one as is asked
    store_runtime.mirror = SimpleNamespace(renew=lambda: None)  # type: ignore[assignment]  # likewise
    flushed = engine.core.parts.confirmations.flushed
    store_runtime.store = SimpleNamespace(flushed=flushed)  # type: ignore[assignment]  # likewise
    store_runtime.serve(engine.core.parts)
    (safe,) = attached
    assert flushed > 0 == safe()
    quorum.confirm(engine)
    assert safe() == flushed
