"""What did operators and clients decide before this start?"""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest

from kourou.access.model import Action, Effect, Pattern, Policy, RoleGrant, User, UserRole
from kourou.broker.storage.config_mirror import ConfigTables
from kourou.broker.storage.control_recovery import read_control_events, recover_control
from kourou.engine.control import CONTROL, ControlState, encode_state, evolve
from kourou.engine.filters import filter_table as filters
from kourou.engine.filters.filter_table import FilterAggregate, snapshot
from kourou.errors import Corrupt, MetadataUnavailable
from kourou.events import control_events
from kourou.events.control_events import (
    EventLost,
    FilterEnabled,
    FilterMessagesSkipped,
    FilterPolicySet,
    FilterQuarantined,
    FilterUploaded,
    GroupPut,
    PolicyRemoved,
    Recorded,
    SettingChanged,
    TopicDeleted,
    TopicPut,
    UnknownEvent,
    UserPut,
)
from kourou.model.filter import FilterPolicy
from kourou.model.names import CONTROL_TOPIC
from kourou.model.subscription import GroupConfig
from kourou.model.topic import TopicConfig
from kourou.protocol.record.message_record import encode_draft
from kourou.testing.disk import SimDisk
from kourou_rigs.store import Draft, StoreWriter

NOTHING = ConfigTables(None, None, None)
DENIAL = Policy(
    id="till/Topic:orders/deny",
    user="till",
    resource=Pattern.parse("Topic:orders"),
    actions=(Action.PUB,),
    effect=Effect.DENY,
)
TOPIC, GROUP = TopicConfig("orders", 4, 4), GroupConfig("g")


class Files:
    """The configuration files, as a test wants them."""

    def __init__(
        self, external: ConfigTables = NOTHING, everything: ConfigTables = NOTHING
    ) -> None:
        self._external, self._everything = external, everything

    def external(self) -> ConfigTables:
        return self._external

    def everything(self) -> ConfigTables:
        return self._everything


class Gone:
    """An event store whose database went away after it was opened; `calls` counts attempts."""

    def __init__(self, inner, works: int = 0) -> None:
        self._inner, self._works = inner, works

    def __getattr__(self, name):
        method = getattr(self._inner, name)

        def call(*arguments, **named):
            if self._works <= 0:
                raise MetadataUnavailable("the database is gone")
            self._works -= 1
            return method(*arguments, **named)

        return call


def boot(site, events=None, files=None):
    recovered = recover_control(site.store, events, files or Files(), site.rules)
    site.control = recovered.control
    return recovered


def project(site, events) -> None:
    events.append(read_control_events(site.store, events.info().next_offset, site.store.end))


def hide_log_below(site, low: int):
    """A view of the store whose control topic begins later, as after retention."""

    class View:
        def __getattr__(self, name):
            return getattr(site.store, name)

        def queue_range(self, topic, queue_id):
            span = site.store.queue_range(topic, queue_id)
            return (low, span[1]) if topic == CONTROL_TOPIC and span else span

    return View()


@pytest.mark.parametrize("with_events", [True, False])
def test_the_log_alone_gives_the_state_and_fills_the_event_store(
    site, event_store, with_events
) -> None:
    site.record(TopicPut(TOPIC), GroupPut(GROUP), SettingChanged("hours", 1, None))
    before = encode_state(site.control)
    site.reopen()
    recovered = boot(site, event_store if with_events else None)
    assert encode_state(recovered.control) == before
    assert recovered.imported == []
    if with_events:
        assert event_store.info().next_offset == 3
        assert encode_state(event_store.load(CONTROL)[0]) == before


def test_the_event_store_goes_on_where_it_was(site, event_store) -> None:
    site.record(TopicPut(TOPIC))
    project(site, event_store)
    site.record(GroupPut(GROUP))
    before = encode_state(site.control)
    site.reopen()
    assert encode_state(boot(site, event_store).control) == before
    assert event_store.info().next_offset == 2


def test_an_event_store_ahead_of_the_log_is_taken_back(site, event_store) -> None:
    """Power went off under ASYNC_FLUSH: the database had heard of what the disk had not."""
    site.record(TopicPut(TOPIC))
    site.store.checkpoint()
    safe = copy.deepcopy(site.disk).kill()
    before = encode_state(site.control)
    site.record(GroupPut(GROUP), GroupPut(GroupConfig("h")))
    project(site, event_store)
    site.reopen(safe)
    assert encode_state(boot(site, event_store).control) == before
    assert event_store.info().next_offset == 1
    site.record(GroupPut(GroupConfig("other")))
    project(site, event_store)
    assert [event.event.aggregate for event in event_store.events()] == [
        "topic/orders",
        "group/other",
    ]


def test_an_event_store_with_another_history_is_rebuilt(site, event_store) -> None:
    """It is another store's, or of a log that was cut back and has grown again since."""
    site.record(TopicPut(TOPIC), GroupPut(GROUP))
    before = encode_state(site.control)
    other = type(site)(SimDisk())
    other.record(TopicPut(TopicConfig("strange", 1, 1)))
    project(other, event_store)
    other.store.close()
    site.reopen()
    assert encode_state(boot(site, event_store).control) == before
    assert encode_state(event_store.load(CONTROL)[0]) == before


def test_a_new_log_does_not_cost_the_history_of_the_old_one(site, event_store, caplog) -> None:
    """The store's folder was mistyped or lost: the history of decisions is still kept."""
    theirs = [Recorded(n, n, n, "", "", "", TopicPut(TopicConfig("t"))) for n in range(8)]
    event_store.append(theirs)
    assert boot(site, event_store).control == ControlState()
    assert event_store.events() == []
    assert event_store.events(stream="control~1") == theirs
    assert "kept as control~1" in caplog.text


def test_unreadable_rows_make_it_start_from_the_log(site, event_store, monkeypatch) -> None:
    site.record(TopicPut(TOPIC), GroupPut(GROUP))
    project(site, event_store)
    before = encode_state(site.control)

    def load(*_args, **_named):
        raise Corrupt("a row cannot be read")

    monkeypatch.setattr(type(event_store), "load", load)
    site.reopen()
    assert encode_state(boot(site, event_store).control) == before
    monkeypatch.undo()
    assert encode_state(event_store.load(CONTROL)[0]) == before, "rebuilt"


@pytest.mark.parametrize("works", [0, 1, 2, 3])
def test_a_database_that_goes_away_at_any_moment_stops_nothing(site, event_store, works) -> None:
    site.record(TopicPut(TOPIC))
    project(site, event_store)
    site.record(GroupPut(GROUP))
    before = encode_state(site.control)
    history = event_store.info()
    site.reopen()
    assert encode_state(boot(site, Gone(event_store, works)).control) == before
    assert event_store.info() == history, "what it knew is still there"


def test_a_lost_event_store_is_made_up_for_by_the_files(site, event_store) -> None:
    site.record(TopicPut(TOPIC), GroupPut(GROUP), GroupPut(GroupConfig("h")))
    files = Files(
        everything=ConfigTables({"orders": TOPIC}, {"g": GROUP}, {"g": {"orders": {0: 7}}})
    )
    recovered = recover_control(hide_log_below(site, 2), event_store, files, site.rules)
    assert recovered.control.topics.get("orders") == TOPIC
    assert set(recovered.control.groups.table) == {"g", "h"}
    assert recovered.control.progress.offset("g", "orders", 0) == 7
    assert recovered.control.next_offset == 3
    info = event_store.info()
    assert (info.lost_before, info.next_offset) == (2, 3)
    state, _ = event_store.load(CONTROL)
    assert encode_state(state) == encode_state(recovered.control)


@pytest.mark.feature("F240")
@pytest.mark.parametrize("at", range(6))
def test_filters_outlive_the_log_and_the_event_store(site, event_store, at: int) -> None:
    """The file may be as old as any moment; what the log still has is applied once."""
    site.record(TopicPut(TOPIC))
    mirrored = [snapshot(site.control.filters)]
    for event in (
        FilterUploaded("g", "f", 1, "one", "00"),
        FilterEnabled("g", "f", 1),
        FilterPolicySet("g", "f", FilterPolicy.SKIP, FilterPolicy.HOLD),
        FilterMessagesSkipped("g", "f", 1, "orders", 0, (1, 2), "x"),
        FilterQuarantined("g", "f", 1, "it died"),
    ):
        site.record(event)
        mirrored.append(snapshot(site.control.filters))
    tables = ConfigTables({"orders": TOPIC}, {}, {}, mirrored[at])
    low = 1 + min(at, 3)
    recovered = recover_control(
        hide_log_below(site, low), event_store, Files(everything=tables), site.rules
    )
    assert recovered.control.filters == site.control.filters
    state, _ = event_store.load(CONTROL)
    assert state.filters == site.control.filters


def test_a_file_of_filters_that_is_ahead_of_the_log_does_not_hide_what_comes(
    site, event_store
) -> None:
    """Power went off under ASYNC_FLUSH: the file has the effect of events that the log lost."""
    site.record(TopicPut(TOPIC), GroupPut(GROUP))
    ahead = FilterAggregate()
    filters.evolve(ahead, FilterUploaded("g", "f", 1, "one", "00"), 7, 100)
    tables = ConfigTables({"orders": TOPIC}, {}, {}, snapshot(ahead))
    view = hide_log_below(site, 1)
    recovered = recover_control(view, event_store, Files(everything=tables), site.rules)
    assert recovered.control.filters.get("g", "f") is not None
    assert recovered.control.filters.next_offset == 2
    evolve(recovered.control, Recorded(2, -1, 9, "t", "", "", FilterEnabled("g", "f", 1)))
    assert recovered.control.filters.table["g", "f"].active == 1


def test_without_event_store_and_files_the_broker_does_not_guess(site, event_store) -> None:
    site.record(TopicPut(TOPIC), GroupPut(GROUP))
    for events in (None, event_store):
        with pytest.raises(Corrupt, match="below offset 1"):
            recover_control(hide_log_below(site, 1), events, Files(), site.rules)


def test_an_unreachable_database_keeps_its_history(site, event_store) -> None:
    """It comes back in the middle of the start: its history must not be thrown away."""
    site.record(TopicPut(TOPIC), GroupPut(GROUP))
    project(site, event_store)
    back_soon = Gone(event_store, 0)
    files = Files(everything=ConfigTables({"orders": TOPIC}, {}, {}))

    class View:
        """When the log is asked for events, the database is back."""

        def __init__(self, inner) -> None:
            self._inner = inner

        def __getattr__(self, name):
            back_soon._works = 99
            return getattr(self._inner, name)

        def queue_range(self, topic, queue_id):
            return self._inner.queue_range(topic, queue_id)

    recover_control(View(hide_log_below(site, 1)), back_soon, files, site.rules)
    assert event_store.info().lost_before == 0


def test_what_another_broker_wrote_is_imported_as_events(site) -> None:
    site.record(TopicPut(TOPIC), GroupPut(GROUP), TopicPut(TopicConfig("dropped", 1, 1)))
    changed = replace(TOPIC, perm=4)
    files = Files(
        external=ConfigTables(
            {"orders": changed, "new": TopicConfig("new", 2, 2)}, None, {"g": {"orders": {1: 5}}}
        )
    )
    site.reopen()
    recovered = boot(site, None, files)
    assert TopicPut(changed, TOPIC) in recovered.imported
    assert TopicDeleted(TopicConfig("dropped", 1, 1)) in recovered.imported
    assert not any(isinstance(event, GroupPut) for event in recovered.imported)
    site.record(*recovered.imported)
    assert boot(site, None, files).imported == [], "the same files a second time change nothing"


def test_a_topic_that_another_broker_deleted_goes_on_counting(site) -> None:
    """Its records are in our log, and no offset is ever given twice (decision 0021)."""
    site.record(TopicPut(TOPIC))
    StoreWriter(site.store).write([Draft("orders", number % 2) for number in range(5)])
    site.reopen()
    recovered = boot(site, None, Files(external=ConfigTables({}, None, None)))
    (deleted,) = (one for one in recovered.imported if isinstance(one, TopicDeleted))
    assert deleted == TopicDeleted(TOPIC, {0: 3, 1: 2})


def test_a_damaged_record_stands_as_lost(site) -> None:
    site.record(*(GroupPut(GroupConfig(f"g{n}")) for n in range(4)))
    at = site.store.offset_position(CONTROL_TOPIC, 0, 1)
    segment = next(path for path in site.disk.files() if "commitlog" in path.parts)
    site.disk.overwrite(segment, b"\0\xff\0\xff", at + 120)
    read = read_control_events(site.store, 0, site.store.end)
    assert [(each.offset, each.event.type) for each in read] == [
        (0, "GroupPut"),
        (1, "EventLost"),
        (2, "GroupPut"),
        (3, "GroupPut"),
    ]
    assert read[1].event == EventLost("its record is unreadable", about_users=False)


# -- events about users ----------------------------------------------------------------------------

ROOT = User(name="root", roles=(RoleGrant(UserRole.ADMINISTRATOR),))
TILL = User(name="till", roles=(RoleGrant(UserRole.READER),))
NEWER = UnknownEvent(
    "UserPut",
    "user/till",
    b'{"type":"UserPut","user":{"name":"till","roles":[{"role":"auditor"}]}}',
)
"""A user with a role that only newer versions know."""


class Newer:
    """The decoder of a version that knows that role."""

    def __init__(self, of_this_version) -> None:
        self._decoder = of_this_version

    def decode(self, body):
        return self._decoder.decode(bytes(body).replace(b"auditor", b"reader"))


@pytest.fixture
def upgrade(monkeypatch):
    """Make this version one that can read the event."""
    return lambda: monkeypatch.setattr(
        control_events, "_EVENT_DECODER", Newer(control_events._EVENT_DECODER)
    )


@pytest.mark.parametrize("with_events", [True, False])
@pytest.mark.parametrize("users", [[UserPut(ROOT)], []])
def test_users_that_cannot_be_read_close_the_broker_until_a_version_can(
    site, event_store, caplog, upgrade, users, with_events
) -> None:
    """Also if no other event is about users: the broker would be open."""
    site.record(TopicPut(TOPIC), *users, NEWER, GroupPut(GROUP))
    events = event_store if with_events else None
    for _ in range(2):
        site.reopen()
        control = boot(site, events).control
        assert "(UserPut of user/till)" in control.access.unreadable
        assert control.access.active
        assert "g" in control.groups, "everything else is as it was decided"
    assert "Start the version of Kourou that wrote it, or a newer one" in caplog.text
    if with_events:
        assert event_store.events()[-2].event == NEWER, "byte for byte"
    upgrade()
    site.reopen()
    control = boot(site, events).control
    assert not control.access.unreadable
    assert control.access.users["till"] == TILL


def test_what_an_older_version_could_not_read_is_read_again(site, event_store) -> None:
    """It kept such events as lost, in its event store."""
    site.record(UserPut(ROOT), TopicPut(TOPIC), UserPut(TILL), GroupPut(GROUP))
    before = encode_state(site.control)
    recorded = read_control_events(site.store, 0, site.store.end)
    recorded[2] = replace(recorded[2], event=EventLost("unreadable"), position=-1, at_ms=0)
    event_store.append(recorded)
    event_store.snapshot(CONTROL.snapshot(event_store.load(CONTROL)[0]))
    for low in (0, 1):
        site.reopen()
        recovered = recover_control(hide_log_below(site, low), event_store, Files(), site.rules)
        assert encode_state(recovered.control) == before
    assert encode_state(event_store.load(CONTROL)[0]) == before
    assert event_store.info().lost_before == 0, "no history is lost"


@pytest.mark.fault
@pytest.mark.parametrize("event", [UserPut(TILL, ROOT), PolicyRemoved(DENIAL)])
def test_a_damaged_record_about_users_closes_the_broker(site, event_store, event) -> None:
    site.record(UserPut(ROOT), event, GroupPut(GROUP))
    at = site.store.offset_position(CONTROL_TOPIC, 0, 1)
    segment = next(path for path in site.disk.files() if "commitlog" in path.parts)
    site.disk.overwrite(segment, b"\0\xff\0\xff", at + 120)
    recovered = boot(site, event_store)
    assert "control event 1" in recovered.control.access.unreadable
    assert event_store.events()[1].event == EventLost("its record is unreadable", about_users=True)
    assert event_store.load(CONTROL)[0].access == recovered.control.access


def test_a_record_that_is_no_event_costs_itself_only(site, event_store) -> None:
    site.record(TopicPut(TOPIC))
    parts = site.parts()
    draft = encode_draft(
        topic=CONTROL_TOPIC.encode(),
        queue_id=0,
        body=b"\xff",
        properties=b"",
        born_timestamp=1,
        born_host=bytes(8),
    )
    parts.appends.write_one(draft, (CONTROL_TOPIC, 0), site.clock.now_ms())
    site.perform(parts.appends.take_done())
    site.record(GroupPut(GROUP))
    site.reopen()
    recovered = boot(site, event_store)
    assert recovered.control.next_offset == 3
    assert "g" in recovered.control.groups
    assert [each.event.type for each in event_store.events()] == [
        "TopicPut",
        "EventLost",
        "GroupPut",
    ]
