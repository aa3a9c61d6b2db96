"""A broker's store with a control topic, without sockets and threads."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kourou.engine.control import ControlState
from kourou.engine.core import BrokerCore
from kourou.engine.effects import Append, DropTopic, Effect
from kourou.engine.parts import BrokerParts
from kourou.engine.policy import EffectivePolicy, TopicRules
from kourou.engine.roles.role import STANDALONE, RoleSettings
from kourou.engine.sends.appends import LogEnd
from kourou.engine.start import Start
from kourou.events.control_events import Cause, Event
from kourou.eventstore.event_store import EventStore
from kourou.settings.registry import SettingsRegistry
from kourou.store.store import Store
from kourou.testing.disk import SimDisk
from kourou_rigs.clock import ManualClock
from kourou_rigs.store import small_settings


class Site:
    """A disk, the store on it, and desks over both; effects on the log are done at once."""

    def __init__(self, disk: SimDisk | None = None) -> None:
        self.disk = disk or SimDisk()
        self.clock = ManualClock()
        self.rules = TopicRules(broker_name="broker-a")
        self.control = ControlState()
        self.open()

    def open(self, **changes: object) -> None:
        """Open the store, for the first time or again."""
        settings = replace(small_settings(Path("/store"), segment_size_bytes=64 * 1024), **changes)
        self.store = Store.open(settings, self.disk)

    def parts(self, **settings: Any) -> BrokerParts:
        """The request handlers of a broker on this store."""
        return self.core(**settings).parts

    def core(
        self,
        *,
        sync_flush: bool = False,
        figures: Callable[[], Mapping[str, str]] = dict,
        delays: Mapping[int, int] | None = None,
        role: RoleSettings = STANDALONE,
    ) -> BrokerCore:
        """The core of a broker on this store."""
        store = self.store
        return BrokerCore(
            Start(
                view=store,
                control=self.control,
                log=LogEnd(
                    store.end,
                    store.space.allocated_end,
                    store.settings.segment_size_bytes,
                    store.store_ms,
                ),
                flushed=store.flushed,
                store_host=("127.0.0.1", 10911),
                policy=EffectivePolicy("DefaultCluster", "broker-a"),
                registry=SettingsRegistry([]),
                sync_flush=sync_flush,
                flush_timeout_ms=5_000,
                figures=figures,
                delays=delays or {},
                role=role,
            )
        )

    def record(self, *events: Event) -> None:
        """Append control events, and evolve the state with them."""
        for event in events:
            parts = self.parts()
            parts.recorder.record([event], Cause("t", "test"), self.clock.now_ms())
            self.perform(parts.appends.take_done())

    def perform(self, effects: list[Effect]) -> None:
        """Do what concerns the log."""
        for effect in effects:
            match effect:
                case Append():
                    self.store.append(effect.pieces, effect.blanks, effect.end)
                    self.store.dispatch()
                case DropTopic():
                    self.store.remove_topic(effect.topic)
        self.store.allocate_next()

    def reopen(self, disk: SimDisk | None = None, **changes: object) -> None:
        """Close, or lose power if another disk is given, and open again without any state."""
        if disk is None:
            self.store.close()
        else:
            self.disk = disk
        self.control = ControlState()
        self.open(**changes)


@pytest.fixture
def site() -> Iterator[Site]:
    made = Site()
    yield made
    made.store.close()


@pytest.fixture
def event_store(tmp_path: Path) -> Iterator[EventStore]:
    store = EventStore.at(tmp_path / "events.db")
    yield store
    store.close()


@pytest.fixture
def calls() -> list[Any]:
    """What was called, in order."""
    return []
