"""Topics, as operators ask about and change them; the rest is in the transcripts."""

from kourou.engine.effects import DropTopic
from kourou.engine.inputs import RegistrationDone, StoreFailed
from kourou.errors import Code
from kourou.protocol.messages.broker_admin import CleanUnusedTopic, UpdateAndCreateTopic
from kourou_rigs.engine import Engine


def create(name: str) -> UpdateAndCreateTopic:
    return UpdateAndCreateTopic(topic=name, read_queue_nums=4, write_queue_nums=4, perm=6)


def test_queues_that_no_table_names_are_dropped(engine, draft, records) -> None:
    engine.ask(*records([draft()]))
    engine.store.queues["left-over", 3] = []
    engine.store.queues["rmq_sys_other", 0] = []
    assert engine.ask(CleanUnusedTopic()).code == Code.SUCCESS
    dropped = [effect.topic for effect in engine.effects if isinstance(effect, DropTopic)]
    assert dropped == ["left-over"]
    assert engine.store.topics() == ["orders", "rmq_sys_kourou_control", "rmq_sys_other"]


def test_its_creator_waits_for_the_disk_and_for_the_name_servers() -> None:
    engine = Engine(sync_flush=True, name_servers=False)
    made = engine.send(create("fresh"))
    engine.flush()
    assert made not in engine.replies
    engine.handle(RegistrationDone(1))
    assert engine.replies[made].code == Code.SUCCESS
    again = engine.send(create("more"))
    engine.handle(RegistrationDone(2))
    assert again not in engine.replies
    engine.flush()
    assert engine.replies[again].code == Code.SUCCESS


def test_what_failed_is_reported_at_once() -> None:
    engine = Engine(sync_flush=True, name_servers=False)
    made = engine.send(create("fresh"))
    engine.handle(StoreFailed("EIO"))
    assert engine.replies[made].code == Code.OUTCOME_UNKNOWN
