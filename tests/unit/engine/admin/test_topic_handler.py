"""Topics, as clients and operators ask about and change them."""

import pytest

from kourou.engine.effects import DropTopic
from kourou.errors import Code
from kourou.protocol.messages.broker_admin import CleanUnusedTopic, UpdateAndCreateTopic


def test_queues_that_no_table_names_are_dropped(engine, draft, records) -> None:
    engine.ask(*records([draft()]))
    engine.store.queues["left-over", 3] = []
    engine.store.queues["rmq_sys_other", 0] = []
    assert engine.ask(CleanUnusedTopic()).code == Code.SUCCESS
    dropped = [effect.topic for effect in engine.effects if isinstance(effect, DropTopic)]
    assert dropped == ["left-over"]
    assert engine.store.topics() == ["orders", "rmq_sys_kourou_control", "rmq_sys_other"]


@pytest.mark.feature("F051")
def test_a_queue_that_a_group_has_not_read_is_not_taken_away(engine, draft, records) -> None:
    drafts = [draft(queue_id=1), draft(queue_id=1)]
    engine.ask(*records(drafts, targets=[("orders", 1)]))
    engine.core.parts.commits.commit("g", "orders", 1, 1)
    fewer = UpdateAndCreateTopic(topic="orders", read_queue_nums=1, write_queue_nums=1, perm=6)
    refused = engine.ask(fewer)
    assert refused.code == Code.SYSTEM_ERROR
    assert "no longer be readable" in refused.remark
    engine.core.parts.commits.commit("g", "orders", 1, 2)
    assert engine.ask(fewer).code == Code.SUCCESS
