"""`config/*.json` follow the control state."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kourou.broker.storage.config_mirror import ConfigMirror
from kourou.engine.filters.filter_table import filters_of
from kourou.errors import Corrupt
from kourou.events.control_events import (
    FilterDeleted,
    FilterEnabled,
    FilterUploaded,
    GroupPut,
    TopicPut,
)
from kourou.model.subscription import GroupConfig
from kourou.model.topic import TopicConfig
from kourou.protocol.wire.lenient_json import loads
from kourou.store.config.config_files import DELAYS, OFFSETS, TOPICS
from kourou_rigs.waiting import until


def mirror(site) -> ConfigMirror:
    made = ConfigMirror(site.disk, site.store.paths, retry_s=0.001)
    made.attach(site.core().view)
    return made


async def written(site) -> None:
    """Another run of this broker: it starts, writes its files, and stops."""
    one = mirror(site)
    one.start()
    await one.stop()


def read(site, name: str) -> dict:
    return loads(site.disk.read(site.store.paths.config / name))


def write(site, name: str, data: bytes) -> None:
    path: Path = site.store.paths.config / name
    if site.disk.exists(path):
        site.disk.unlink(path)
    file = site.disk.open(path, create_size=len(data))
    file.pwrite(data, 0)
    file.close()


def has_topic(site, name: str) -> bool:
    path = site.store.paths.config / TOPICS
    return site.disk.exists(path) and name in read(site, TOPICS)["topicConfigTable"]


async def test_all_tables_are_written_at_start_and_again_when_they_change(site) -> None:
    site.record(TopicPut(TopicConfig("orders", 4, 4)), GroupPut(GroupConfig("g")))
    one = mirror(site)
    one.start()
    await until(lambda: has_topic(site, "orders"))
    site.record(TopicPut(TopicConfig("paid", 1, 1)))
    one.changed("topics")
    one.changed("settings")
    await until(lambda: has_topic(site, "paid"))
    await one.stop()
    assert "g" in read(site, "subscriptionGroup.json")["subscriptionGroupTable"]


@pytest.mark.feature("F195")
async def test_a_stop_writes_commits_that_no_event_has_yet(site) -> None:
    site.record(TopicPut(TopicConfig("orders", 4, 4)), GroupPut(GroupConfig("g")))
    core = site.core()
    commits = core.view.commits
    one = ConfigMirror(site.disk, site.store.paths)
    one.attach(core.view)
    one.start()
    commits.commit("g", "orders", 2, 9)
    await one.stop()
    assert read(site, OFFSETS)["offsetTable"]["orders@g"] == {"2": 9}


@pytest.mark.fault
async def test_a_disk_that_does_not_take_them_is_asked_again(site, monkeypatch, caplog) -> None:
    one = mirror(site)
    tries = []
    good = one._files.save_topics

    def save(table) -> bool:
        tries.append(1)
        if len(tries) <= 3:
            raise OSError(28, "No space left on device")
        return good(table)

    monkeypatch.setattr(one._files, "save_topics", save)
    site.record(TopicPut(TopicConfig("orders", 4, 4)))
    one.start()
    await until(lambda: has_topic(site, "orders"))
    await one.stop()
    assert caplog.text.count("cannot be written") == 1


async def test_our_own_files_are_not_external(site) -> None:
    site.record(TopicPut(TopicConfig("orders", 4, 4)))
    await written(site)
    again = mirror(site).external()
    assert (again.topics, again.groups, again.offsets) == (None, None, None)
    everything = mirror(site).everything()
    assert set(everything.topics) == {"orders"}


async def test_what_another_broker_wrote_is_seen_once(site) -> None:
    await written(site)
    table = {"orders@g": {"0": 3}, "no group": {"0": 1}}
    write(site, OFFSETS, json.dumps({"offsetTable": table}).encode())
    changed = mirror(site)
    tables = changed.external()
    assert tables.topics is None
    assert tables.offsets == {"g": {"orders": {0: 3}}}
    changed.start()
    await changed.stop()
    assert mirror(site).external().offsets is None, "written anew, so it is ours again"


async def test_a_missing_file_changes_nothing_and_a_damaged_one_stops_the_start(site) -> None:
    site.record(TopicPut(TopicConfig("orders", 4, 4)))
    await written(site)
    site.disk.unlink(site.store.paths.config / TOPICS)
    assert mirror(site).external().topics is None
    write(site, TOPICS, b"{")
    with pytest.raises(Corrupt, match=r"topics\.json"):
        mirror(site).external()


@pytest.mark.feature("F061")
async def test_the_progress_of_the_delay_levels_is_mirrored_and_another_s_believed(site) -> None:
    await written(site)
    assert read(site, DELAYS) == {"offsetTable": {}}
    write(site, DELAYS, b'{"offsetTable":{1:7,3:2}}')
    again = ConfigMirror(site.disk, site.store.paths)
    assert again.delays(known=True) == {1: 7, 3: 2}
    again.attach(site.core(delays={1: 7}).view)
    again.start()
    await again.stop()
    third = ConfigMirror(site.disk, site.store.paths)
    assert third.delays(known=True) == {}  # it is ours now
    assert third.delays(known=False) == {}
    write(site, DELAYS, b'{"offsetTable":{"x":1}}')
    assert ConfigMirror(site.disk, site.store.paths).delays(known=False) == {1: 7, 3: 2}  # .bak


@pytest.mark.feature("F240")
async def test_filters_are_mirrored_in_a_file_of_ours(site) -> None:
    one = mirror(site)
    assert one.everything().filters is None
    one.start()
    await one.stop()
    assert not site.disk.exists(site.store.paths.filters), "there never was a filter"

    site.record(FilterUploaded("g", "f", 1, "source", "00"), FilterEnabled("g", "f", 1))
    two = mirror(site)
    two.start()
    two.changed("filters")
    await until(lambda: site.disk.exists(site.store.paths.filters))
    site.record(FilterUploaded("g", "f", 2, "two", "01"))
    two.changed("filters")
    await two.stop()
    read = ConfigMirror(site.disk, site.store.paths).everything().filters
    assert read is not None
    assert filters_of(read) == site.control.filters
    site.record(FilterDeleted(site.control.filters.table["g", "f"]))
    three = mirror(site)
    three.start()
    await three.stop()
    read = three.everything().filters
    assert read is not None
    assert (read.filters, read.retired) == ((), (("g", "f", 3),))
