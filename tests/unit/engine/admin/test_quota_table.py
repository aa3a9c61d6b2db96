"""Quotas as decisions: what may be set, which one applies, and how it is undone and replayed."""

from __future__ import annotations

from kourou.engine.admin.history import state_body
from kourou.engine.admin.quota_table import QuotaAggregate, decide_put, decide_remove, evolve
from kourou.engine.control import decode_state, encode_state
from kourou.events.control_events import QuotaPut, QuotaRemoved, decode_record_body
from kourou.model.quota import Quota, QuotaKind
from kourou.protocol.bodies.quota_bodies import decode_quotas
from kourou.protocol.messages.quotas import ListQuotas, RemoveQuota, SetQuota
from kourou_rigs.engine import Engine

USER, TOPIC, GROUP = QuotaKind.USER, QuotaKind.TOPIC, QuotaKind.GROUP


def table_of(*quotas: Quota) -> QuotaAggregate:
    table = QuotaAggregate()
    for one in quotas:
        for event in decide_put(table, one):
            assert isinstance(event, QuotaPut)
            evolve(table, event)
    return table


def listed(engine: Engine) -> list[Quota]:
    return decode_quotas(b"".join(engine.ask(ListQuotas()).body))


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


def test_what_is_equal_is_no_event() -> None:
    quota = Quota(kind=TOPIC, name="orders", publish_messages=7)
    table = table_of(quota)
    assert decide_put(table, quota) == []
    assert decide_remove(table, GROUP, "orders") == []
    assert decide_remove(table, TOPIC, "orders") == [QuotaRemoved(quota)]


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
