"""A member begins its log where others' logs begin by now: asking, and every way to crash in it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from kourou.broker.config import BrokerSettings
from kourou.broker.part_settings import store_settings_of
from kourou.broker.storage import bootstrap as late_beginning
from kourou.broker.storage.bootstrap import Bootstrap, RestartLog, RestartRequest, pending_beginning
from kourou.broker.storage.open_store import open_store
from kourou.engine.admin.log_bootstrap import LogBeginning, encode_beginning
from kourou.engine.control import ControlState, encode_state, evolve
from kourou.errors import ConfigError, Corrupt, KourouError, MetadataUnavailable, Unavailable
from kourou.events.control_events import EpochOpened, Recorded, TopicPut
from kourou.eventstore.event_store import EventStore
from kourou.model.names import CONTROL_TOPIC
from kourou.model.topic import TopicConfig
from kourou.store.replica.replica_files import load_epochs
from kourou.store.store import Store
from kourou.testing.disk import PowerLost, SimDisk
from kourou_rigs.clock import ManualClock
from kourou_rigs.store import Draft, StoreWriter, readable

SIZE = 16 * 1024
POSITION = 5 * SIZE
ENDS = {CONTROL_TOPIC: {0: 2}, "orders": {3: 40}}


def beginning(position: int = POSITION) -> LogBeginning:
    control = ControlState()
    evolve(control, Recorded(0, 0, 10, "t", "", "", EpochOpened(64, 0, "a/0", "ASYNC_MASTER")))
    evolve(control, Recorded(1, 90, 11, "t", "", "", TopicPut(TopicConfig("orders", 4, 4))))
    return LogBeginning("DefaultCluster", "broker-a", SIZE, position, ENDS, control)


BODY = encode_beginning(beginning())


class Member:
    """A follower's store on a disk that may lose power, and its event store."""

    def __init__(self, folder: Path, seed: int = 0) -> None:
        self.disk = SimDisk(seed)
        folder.mkdir()
        self.settings = BrokerSettings(
            store_root=Path("/store"),
            segment_size_bytes=SIZE,
            event_store_url=f"sqlite:///{folder}/events.db",
        )
        store = Store.open(store_settings_of(self.settings), self.disk)
        StoreWriter(store).write([Draft("TopicA", n % 3, bytes(200)) for n in range(30)])
        self.old = readable(store)
        self.old_end = store.end
        store.close()

    def intend(self, common: int = 2**40) -> None:
        """As a tenure that ends for it."""
        store = Store.open(store_settings_of(self.settings), self.disk)
        try:
            RestartLog(POSITION, 64, common, BODY).leave(store)
        finally:
            store.close(settle=False)

    def start(self) -> str:
        """Start as a process does, see what it serves, and die: "old" or "new", never between."""
        found = open_store(self.settings, self.disk)
        try:
            assert pending_beginning(store_settings_of(self.settings), self.disk) is None
            start, end = found.store.log_range()
            control = found.recovered.control
            if start == 0:
                assert end == self.old_end
                assert readable(found.store) == self.old
                assert control.next_offset == 0
                return "old"
            assert (start, end) == (POSITION, POSITION)
            assert encode_state(control) == encode_state(beginning().control)
            assert found.store.queue_range("orders", 3) == (40, 40)
            assert found.store.queue_range(CONTROL_TOPIC, 0) == (2, 2)
            assert load_epochs(self.disk, found.store.paths) == [(64, 0)]
            return "new"
        finally:
            found.close()


def test_it_begins_there_with_what_was_decided_before(tmp_path: Path) -> None:
    member = Member(tmp_path / "m")
    member.intend()
    assert member.start() == "new"
    member.disk.kill()
    assert member.start() == "new", "the next start finds it so"


def test_what_was_no_leaders_is_kept_for_the_operator(tmp_path: Path) -> None:
    member = Member(tmp_path / "m")
    member.intend(common=0)
    (kept,) = member.disk.list_dir(Path("/store/kourou/diverged"))
    assert len(member.disk.read(Path("/store/kourou/diverged") / kept)) == member.old_end
    assert member.start() == "new"
    assert member.disk.list_dir(Path("/store/kourou/diverged")) == [kept]


@pytest.mark.fault
def test_a_crash_at_any_step_leaves_the_old_log_or_a_whole_beginning(
    tmp_path: Path, rounds
) -> None:
    """Power is cut at one sync after the other, in the intent and in carrying it out."""
    found: list[str] = []
    for round_ in range(rounds(80)):
        step = 1 + (round_ * 37) % 80
        member = Member(tmp_path / str(round_), round_)
        member.disk.cut_power(step)
        try:
            member.intend()
            member.start()
        except PowerLost:
            member.disk = member.disk.crash()
        else:
            member.disk.kill()
        found.append(member.start())
        member.intend()
        assert member.start() == "new"
    assert "new" in found


def test_without_the_event_store_it_does_not_start_and_later_it_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    member = Member(tmp_path / "m")
    member.intend()

    def gone(*_: object) -> None:
        raise MetadataUnavailable("out of reach")

    with monkeypatch.context() as patch:
        patch.setattr(EventStore, "begin", gone)
        with pytest.raises(MetadataUnavailable):
            member.start()
        assert pending_beginning(store_settings_of(member.settings), member.disk) is not None
    assert member.start() == "new"


def test_a_beginning_between_two_segments_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    member = Member(tmp_path / "m")
    store = Store.open(store_settings_of(member.settings), member.disk)
    with pytest.raises(ConfigError, match="mappedFileSizeCommitLog"):
        RestartLog(POSITION + 1, 64, 0, BODY).leave(store)
    store.close()
    assert member.start() == "old"


# -- asking ---------------------------------------------------------------------------------------


class Others:
    """Other members, and what each of them answers."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **answers: object) -> None:
        self.answers = answers
        self.asked: list[str] = []
        others = self

        class Source:
            def __init__(self, address: str, group: str, clock: object, curve: object) -> None:
                assert group == "broker-a"
                self.address = address

            async def __aenter__(self) -> Source:
                return self

            async def __aexit__(self, *_: object) -> None:
                """Nothing to give back."""

            async def beginning(self) -> tuple[LogBeginning, bytes]:
                others.asked.append(self.address)
                answer = others.answers[self.address]
                if isinstance(answer, KourouError):
                    raise answer
                assert isinstance(answer, LogBeginning)
                return answer, encode_beginning(answer)

        monkeypatch.setattr(late_beginning, "LogSource", Source)

    def addresses(self) -> Sequence[str]:
        return list(self.answers)


async def answered_by(others: Others, wanted: RestartRequest) -> RestartLog:
    done: asyncio.Future[RestartLog] = asyncio.get_running_loop().create_future()
    late = Bootstrap("broker-a", ManualClock(), others.addresses, done.set_result, pause_s=0)
    late.request(wanted)
    late.request(wanted)
    try:
        return await done
    finally:
        await late.stop()


async def test_one_after_the_other_is_asked_until_one_answers(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    others = Others(monkeypatch, a=Unavailable("gone"), b=beginning(POSITION - SIZE), c=beginning())
    found = await answered_by(others, RestartRequest(POSITION, 77, 64))
    assert found == RestartLog(POSITION, 64, 77, BODY)
    assert others.asked == ["a", "b", "c"]
    assert "gone" in caplog.text
    assert f"its log still starts at {POSITION - SIZE}" in caplog.text


async def test_who_has_deleted_more_is_believed_and_another_history_is_not(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    others = Others(monkeypatch, a=beginning(), b=beginning(POSITION + SIZE))
    found = await answered_by(others, RestartRequest(POSITION, 77, epoch=65))
    assert (found.position, found.epoch) == (POSITION + SIZE, 64)
    assert "belongs to epoch 64 there, but to epoch 65 at the leader" in caplog.text


async def test_a_state_that_is_no_longer_needed_is_not_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another leader had meanwhile what the last one lacked."""
    others = Others(monkeypatch, a=beginning())
    wanted = iter([True, False, True, True])
    answered: list[RestartLog] = []
    late = Bootstrap(
        "broker-a", ManualClock(), others.addresses, answered.append, still=lambda: next(wanted)
    )
    for count in (0, 1):
        late.request(RestartRequest(POSITION, 77))
        assert late._task is not None
        await late._task
        assert len(answered) == count
    assert others.asked == ["a", "a"]


def test_what_was_written_down_and_cannot_be_read_keeps_the_store_shut(tmp_path: Path) -> None:
    member = Member(tmp_path / "m")
    member.intend()
    for name in ("beginning", "beginning.bak"):
        member.disk.overwrite(Path("/store/kourou") / name, b"?", 30)
    with pytest.raises(Corrupt, match="neither"):
        member.start()
