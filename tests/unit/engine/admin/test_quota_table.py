"""Quotas as decisions: which one applies, and what restarts, snapshots and the history have."""

from __future__ import annotations

from kourou.engine.admin.history import state_body
from kourou.engine.admin.quota_table import QuotaAggregate, decide_put, evolve
from kourou.engine.control import decode_state, encode_state
from kourou.events.control_events import QuotaPut, decode_record_body
from kourou.model.quota import Quota, QuotaKind
from kourou.protocol.messages.quotas import RemoveQuota, SetQuota
from kourou_rigs.engine import Engine

USER, TOPIC = QuotaKind.USER, QuotaKind.TOPIC


def table_of(*quotas: Quota) -> QuotaAggregate:
    table = QuotaAggregate()
    for one in quotas:
        for event in decide_put(table, one):
            assert isinstance(event, QuotaPut)
            evolve(table, event)
    return table


def test_a_quota_of_its_own_replaces_that_of_all_as_a_whole() -> None:
    table = table_of(
        Quota(kind=USER, name="*", publish_bytes=10, requests=5),
        Quota(kind=USER, name="till", publish_bytes=100),
        Quota(kind=USER, name="ops"),
    )
    for name, limits in (("till", [100]), ("ops", []), ("other", [10, 5])):
        found = table.of(USER, name)
        assert found is not None
        assert list(found.limits().values()) == limits
    assert table.of(TOPIC, "till") is None


def test_a_quota_survives_a_restart_and_a_snapshot(engine: Engine) -> None:
    engine.ask(SetQuota(kind="topic", name="*", publish_messages=5, reason="fair"))
    quota = Quota(kind=TOPIC, name="*", publish_messages=5)
    again = Engine(left=engine.store)
    assert again.control.quotas.table == {quota.key: quota}
    read = decode_state(encode_state(engine.control))
    assert read.quotas == engine.control.quotas
    assert encode_state(read) == encode_state(engine.control)
    copy = engine.control.copy()
    engine.ask(RemoveQuota(kind="topic", name="*"))
    assert copy.quotas.table == {quota.key: quota}


def test_the_history_says_who_limited_whom_and_why(engine: Engine) -> None:
    engine.ask(SetQuota(kind="user", name="till", requests=5, reason="too many"))
    stored = engine.events()[-1]
    recorded = decode_record_body(stored.body, offset=stored.offset, position=stored.position)
    assert (recorded.event.aggregate, recorded.reason) == ("quota/user/till", "too many")
    assert b'"requests":5' in state_body(engine.control, "quota/user/till")
    assert state_body(engine.control, "quota/topic/till") == b"null"
    assert state_body(engine.control, "quota/queue/till") == b"null"
