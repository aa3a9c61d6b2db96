"""Topics, as clients and operators ask about and change them."""

from kourou.engine.effects import DropTopic
from kourou.errors import Code
from kourou.protocol.messages.broker_admin import CleanUnusedTopic


def test_queues_that_no_table_names_are_dropped(engine, draft, records) -> None:
    engine.ask(*records([draft()]))
    engine.store.queues["left-over", 3] = []
    engine.store.queues["rmq_sys_other", 0] = []
    assert engine.ask(CleanUnusedTopic()).code == Code.SUCCESS
    dropped = [effect.topic for effect in engine.effects if isinstance(effect, DropTopic)]
    assert dropped == ["left-over"]
    assert engine.store.topics() == ["orders", "rmq_sys_kourou_control", "rmq_sys_other"]
