"""Mirrors the control state to `config/*.json`, so that RocketMQ can run on a Kourou store.

It also writes `kourou/filters.json`, a table that RocketMQ does not have.

State: projection. All files can be deleted; they are written again at the next start or change.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from kourou.engine.filters.filter_table import FiltersSnapshot, snapshot
from kourou.engine.view import CoreView
from kourou.errors import KourouError
from kourou.model.subscription import GroupConfig
from kourou.model.topic import TopicConfig
from kourou.store.config.config_files import (
    GROUPS,
    OFFSETS,
    TOPICS,
    ConfigFiles,
    GroupTable,
    TopicTable,
    progress_key,
    read_filters,
    split_progress_key,
    write_filters,
)
from kourou.store.disk import Disk
from kourou.store.paths import StorePaths

_log = logging.getLogger("kourou.broker")

SETTLE_S = 0.1
"""Delay by which the changes of a burst are written together."""

RETRY_S = 1.0
"""Retry interval while the disk rejects writes."""

Progress = dict[str, dict[str, dict[int, int]]]


@dataclass(frozen=True, slots=True)
class ConfigTables:
    """Tables read from files; None if a file is missing or was not changed by another broker.

    `offsets` is group -> topic -> queue id -> offset. `filters` are Kourou's own table.
    """

    topics: Mapping[str, TopicConfig] | None
    groups: Mapping[str, GroupConfig] | None
    offsets: Progress | None
    filters: FiltersSnapshot | None = None


class ConfigMirror:
    """Writes the tables in the background."""

    def __init__(self, disk: Disk, paths: StorePaths, *, retry_s: float = RETRY_S) -> None:
        self._retry_s = retry_s
        self._troubled = False
        self._disk = disk
        self._paths = paths
        self._files = ConfigFiles(disk, paths)
        self._external = self._files.external_changes()
        self._external_delays = self._files.delays_are_external()
        self._view: CoreView | None = None
        self._dirty: dict[str, None] = {}
        self._wanted = asyncio.Event()
        self._ending = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    # -- reading ------------------------------------------------------------------------------

    def external(self) -> ConfigTables:
        """Return the tables that another broker changed. Raises Corrupt for unreadable files."""
        return self._read(self._external)

    def everything(self) -> ConfigTables:
        """Return all tables. Raises Corrupt for unreadable files."""
        tables = self._read([TOPICS, GROUPS, OFFSETS])
        return replace(tables, filters=read_filters(self._disk, self._paths))

    def delays(self, *, known: bool) -> Mapping[int, int]:
        """Return the progress of delay levels that delayOffset.json adds to the log.

        This is another broker's progress, else empty. If the log has none (`known` False), the file
        is used regardless of its writer, because this broker's own file is never ahead of the log.
        Raises Corrupt for an unreadable file.
        """
        if known and not self._external_delays:
            return {}
        loaded = self._files.load_delays()
        if loaded is not None and loaded.note:
            _log.warning("config-file-unusable: %(note)s", {"note": loaded.note})
        return {} if loaded is None else loaded.value

    def _read(self, names: list[str]) -> ConfigTables:
        topics = self._files.load_topics() if TOPICS in names else None
        groups = self._files.load_groups() if GROUPS in names else None
        offsets = self._files.load_offsets() if OFFSETS in names else None
        for loaded in (topics, groups, offsets):
            if loaded is not None and loaded.note:
                _log.warning("config-file-unusable: %(note)s", {"note": loaded.note})
        return ConfigTables(
            None if topics is None else topics.value.topics,
            None if groups is None else groups.value.groups,
            None if offsets is None else _by_group(offsets.value),
        )

    # -- mirroring ----------------------------------------------------------------------------

    def attach(self, view: CoreView) -> None:
        """Set the state to mirror."""
        self._view = view

    def start(self) -> None:
        """Write all tables once, then mirror changes, on the running loop."""
        self.renew()
        self._task = asyncio.create_task(self._follow())

    def renew(self) -> None:
        """Schedule all tables for writing, because another state was attached."""
        self._dirty = dict.fromkeys(("topics", "groups", "offsets", "delays", "filters"))
        self._wanted.set()

    def changed(self, table: str) -> None:
        """Schedule a table for writing."""
        self._dirty[table] = None
        self._wanted.set()

    async def stop(self) -> None:
        """Write the pending tables and all offsets, and stop."""
        if self._task is None:
            return
        self._ending.set()
        self._wanted.set()
        await self._task  # not cancelled: a thread may be writing older tables
        self._dirty["offsets"] = None  # commits are not reported as changes
        self._dirty["delays"] = None
        await self._write()

    async def _follow(self) -> None:
        while not self._ending.is_set():
            await self._wanted.wait()
            self._wanted.clear()
            written = await self._write()
            if not written:
                self._wanted.set()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(SETTLE_S if written else self._retry_s):
                    await self._ending.wait()

    async def _write(self) -> bool:
        """Snapshot the tables on the loop, where nothing changes, and write them in a thread.

        Returns False if a table could not be written; it stays dirty.
        """
        writes = [(table, self._writer(table)) for table in self._dirty]
        self._dirty = {}
        for table, write in writes:
            if write is None:
                continue
            try:
                await asyncio.to_thread(write)
            except (OSError, KourouError) as error:
                self._dirty[table] = None
                if not self._troubled:
                    _log.warning(
                        "config-write-failed: config/*.json cannot be written: %(error)s",
                        {"error": error},
                    )
        self._troubled = bool(self._dirty.keys() & {table for table, _ in writes})
        return not self._troubled

    def _writer(self, table: str) -> Callable[[], object] | None:
        view, files = self._view, self._files
        assert view is not None
        control = view.control
        match table:
            case "topics":
                topics = TopicTable(dict(control.topics.table), control.topics.version)
                return lambda: files.save_topics(topics)
            case "groups":
                groups = GroupTable(dict(control.groups.table), control.groups.version)
                return lambda: files.save_groups(groups)
            case "offsets":
                offsets = {
                    progress_key(topic, group): queues
                    for group, topic, queues in view.commits.entries()
                }
                return lambda: files.save_offsets(offsets)
            case "delays":
                delayed = view.delay_offsets
                return lambda: files.save_delays(delayed)
            case "filters":
                filters = snapshot(control.filters)
                if not filters.next_offset:
                    return None  # there never was a filter
                return lambda: write_filters(self._disk, self._paths, filters)
            case _:
                return None  # settings: RocketMQ has no such file, Kourou keeps them in the log


def _by_group(offsets: Mapping[str, Mapping[int, int]]) -> Progress:
    table: Progress = {}
    for key, queues in offsets.items():
        names = split_progress_key(key)
        if names is None:
            _log.warning(
                "config-entry-invalid: consumerOffset.json has an invalid entry %(key)r: it must "
                "be topic@group",
                {"key": key},
            )
            continue
        topic, group = names
        table.setdefault(group, {})[topic] = dict(queues)
    return table
