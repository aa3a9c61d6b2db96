"""Sends that arrive twice."""

import pytest

from kourou.engine.inputs import StoreFailed
from kourou.engine.ports import ANYWHERE
from kourou.engine.sends import deduplication
from kourou.errors import Code, Rejected
from kourou.model.limits import DEADLINE_MS_MAX
from kourou_rigs.engine import Engine, header_of


def bodies(engine: Engine, topic: str = "orders", queue_id: int = 0) -> list[bytes]:
    return [message.body for message in engine.stored(topic, queue_id)]


def test_a_first_attempt_of_who_cannot_know_is_looked_up_and_nobody_elses_is(
    engine, draft, records
) -> None:
    once, other = draft(key="K1", body=b"1"), draft(key="K2", body=b"2")
    for sent in ([once], [once], [once, other]):
        places = header_of(engine.ask(*records(sent, attempt=0))).offsets
    assert places == [0, 1]
    assert bodies(engine) == [b"1", b"2"]
    assert not engine.core.parts.deduplication.watching, "other producers' sends stay as quick"
    first, one = engine.received(*records([once], attempt=0))
    second, two = engine.received(*records([other]))
    engine.handle(one, two)
    assert header_of(engine.replies[first]).offsets == [0]
    assert header_of(engine.replies[second]).target_offsets == [2]


@pytest.mark.feature("F176")
def test_a_first_attempt_that_arrives_after_the_second_is_a_repeat_too(
    engine, draft, records
) -> None:
    engine.ask(*records([draft(key="other")]))
    late = draft(key="K1", body=b"1")
    second = header_of(engine.ask(*records([late], attempt=2)))
    first = header_of(engine.ask(*records([late])))
    assert second.offsets == first.offsets == [1]
    assert len(bodies(engine, "orders", 0)) == 2
    engine.advance(121_000)
    assert header_of(engine.ask(*records([late]))).target_offsets == [2], (
        "long after, it is a new one"
    )


def test_after_a_retry_other_sends_are_stored_together_as_ever(engine, draft, records) -> None:
    """A retry makes the broker compare first attempts for two minutes: it must stay as fast."""
    retried = draft(key="K1", body=b"1")
    engine.ask(*records([draft(key="other")]))
    engine.ask(*records([retried], attempt=2))
    assert engine.core.parts.deduplication.watching
    numbers, sends = zip(
        *(engine.received(*records([draft(key=f"N{number}")])) for number in range(3)), strict=True
    )
    appends = len(engine.appends())
    engine.handle(*sends)
    assert [header_of(engine.replies[number]).target_offsets for number in numbers] == [
        [2],
        [3],
        [4],
    ]
    assert len(engine.appends()) == appends + 1, "three sends, one append"
    numbers, sends = zip(
        *(engine.received(*records([one])) for one in (draft(key="N4"), retried)), strict=True
    )
    engine.handle(*sends)
    assert header_of(engine.replies[numbers[0]]).target_offsets == [5]
    assert header_of(engine.replies[numbers[1]]).offsets == [1]


def test_a_retried_frame_is_one_append(engine, draft, records) -> None:
    engine.ask(*records([draft(key="other")]))
    appends = len(engine.appends())
    drafts = [draft(key=f"K{number}") for number in range(5)]
    header = header_of(engine.ask(*records([*drafts, drafts[2]], attempt=2)))
    assert header.offsets == [1, 2, 3, 4, 5, 3]
    assert len(engine.appends()) == appends + 1
    assert engine.core.parts.traffic.repeats_removed == 1


def test_what_fits_of_a_retried_frame_is_stored(engine, draft, records) -> None:
    """Or a frame that is larger than a small segment would never be stored."""
    engine.ask(*records([draft(key="other")]))
    drafts = [draft(key=f"K{number}") for number in range(10)]
    engine.core.parts.appends._allocated_end = engine.store.end + 7 * len(drafts[0]) + 20
    assert engine.ask(*records(drafts)).code == Code.SYSTEM_BUSY
    assert len(engine.stored("orders")) == 1, "nothing of a first attempt"
    assert engine.ask(*records(drafts, attempt=2)).code == Code.SYSTEM_BUSY
    assert len(engine.stored("orders")) == 1 + 7
    engine.core.parts.appends._allocated_end = 1 << 62
    header = header_of(engine.ask(*records(drafts, attempt=3)))
    assert header.offsets == list(range(1, 11))


@pytest.mark.feature("F176")
def test_a_repeat_is_found_while_the_index_is_behind_the_queues(engine, draft, records) -> None:
    """As after a full disk: the queues have the message, and the index learns of it later."""
    engine.store.indexed = 0
    once, other = draft(key="K1", body=b"1"), draft(key="K2", body=b"2")
    engine.ask(*records([once, other]))
    for _ in range(3):
        engine.ask(*records([draft(key="K3")]))
        engine.advance(1_000)
        assert header_of(engine.ask(*records([other], attempt=2))).offsets == [1]
    engine.store.indexed = ANYWHERE
    engine.ask(*records([draft(key="K4")]))
    assert not list(engine.core.parts.appends.unprojected(0)), "nothing more is kept"
    engine.advance(1_000)
    assert header_of(engine.ask(*records([once], attempt=2))).offsets == [0]


def test_without_an_index_repeats_are_known_until_they_are_projected(
    engine, draft, records, monkeypatch
) -> None:
    def none(*_: object, **__: object) -> None:
        raise Rejected("this broker has no key index")

    monkeypatch.setattr(engine.store, "find_by_key", none)
    once = draft(key="K1", body=b"1")
    first, one = engine.received(*records([once]))
    second, two = engine.received(*records([once], attempt=2))
    engine.handle(one, two)
    assert header_of(engine.replies[first]).target_offsets == [0]
    assert header_of(engine.replies[second]).offsets == [0]
    engine.advance(1_000)
    assert header_of(engine.ask(*records([once], attempt=2))).offsets == [1]


@pytest.mark.parametrize("sync_flush", [True, False])
def test_after_a_failure_a_repeat_is_promised_nothing(draft, records, sync_flush) -> None:
    engine = Engine(sync_flush=sync_flush)
    once = draft(key="K")
    engine.send(*records([once]))
    engine.handle(StoreFailed("EIO"))
    assert engine.ask(*records([once], attempt=2)).code == Code.OUTCOME_UNKNOWN


def test_remembered_keys_are_bounded_and_expire(monkeypatch) -> None:
    monkeypatch.setattr(deduplication, "RETRIED_KEYS_MAX", 3)
    engine = Engine()
    lookup = deduplication.Deduplication(engine.store, engine.core.parts.appends)
    for number in range(5):
        who = deduplication.MessageIdentity("t", f"K{number}", 1)
        lookup.remember(0, who, deduplication.Original(0, number, 0))
    assert lookup.find(deduplication.MessageIdentity("t", "K1", 1), 0, retried=False) is None
    assert lookup.find(deduplication.MessageIdentity("t", "K2", 1), 0, retried=False).offset == 2
    lookup.expire(DEADLINE_MS_MAX - 1)
    assert lookup.watching
    lookup.expire(DEADLINE_MS_MAX)
    assert not lookup.watching


@pytest.mark.fault
def test_a_long_key_is_remembered_in_few_bytes(engine, draft, records) -> None:
    """A producer chooses it, and a million of them are remembered."""
    long, other = "K" * 30_000, "K" * 29_999 + "L"
    engine.ask(*records([draft(key="other")]))
    second = header_of(engine.ask(*records([draft(key=long, body=b"1")], attempt=2)))
    assert second.offsets == [1]
    assert header_of(engine.ask(*records([draft(key=long, body=b"1")]))).offsets == [1]
    assert header_of(engine.ask(*records([draft(key=other, body=b"1")]))).target_offsets == [2]
    kept = engine.core.parts.deduplication._remembered
    assert [len(key) for _, key in kept] == [64]
