"""Opens a broker's store and everything else that it finds on disk.

A refusal before recovery begins leaves everything unchanged. All functions block: at startup they
run in a thread, so that the broker's pages respond in the meantime.

State: none; it creates the components that have state.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass

from kourou.broker.config import BrokerSettings
from kourou.broker.part_settings import store_settings_of
from kourou.broker.storage.bootstrap import clear_for, pending_beginning, record_beginning
from kourou.broker.storage.config_mirror import ConfigMirror
from kourou.broker.storage.control_recovery import RecoveredControl, recover_control
from kourou.engine.delays.progress import PROGRESS_TARGET
from kourou.errors import ConfigError, Corrupt, MetadataUnavailable
from kourou.eventstore.database import Database, sqlite_url, with_password
from kourou.eventstore.event_store import EventStore
from kourou.eventstore.schema import check_usable
from kourou.store.disk import Disk
from kourou.store.paths import StorePaths
from kourou.store.real_disk import RealDisk
from kourou.store.recovery.restart import forget_beginning
from kourou.store.store import Store

_log = logging.getLogger("kourou.broker")

MOVE_AWAY = "move it away and restart: it is rebuilt from the log"


@dataclass(frozen=True, slots=True)
class OpenStore:
    """The opened components. `trouble` says why the event store is unreachable; "" if it is not.

    `delays` is what another broker delivered of each delay level: level -> next offset.
    """

    store: Store
    mirror: ConfigMirror
    events: EventStore
    trouble: str
    recovered: RecoveredControl
    delays: Mapping[int, int]

    def close(self) -> None:
        """Close everything."""
        self.events.close()
        self.store.close()


def open_store(settings: BrokerSettings, disk: Disk | None = None) -> OpenStore:
    """Open and recover everything. Raises what Store.open, EventStore and recover_control raise."""
    disk = disk or RealDisk()

    def first_look(paths: StorePaths) -> None:
        try:
            check_usable(_event_store_url(settings, paths))
        except (ConfigError, Corrupt) as error:
            raise _refused(error) from error

    if settings.staging and settings.sync_flush:
        _log.warning(
            "staging-pool-unused: transientStorePoolEnable has no effect with SYNC_FLUSH: messages "
            "go to the log's file"
        )
    store_settings = store_settings_of(settings)
    beginning = pending_beginning(store_settings, disk)
    if beginning is not None:
        first_look(store_settings.paths)
        clear_for(beginning, store_settings, disk)
    store = Store.open(store_settings, disk, first_look)
    events: EventStore | None = None
    trouble = ""
    try:
        events = _event_store(settings, store.paths)
        try:
            events.prepare()
        except MetadataUnavailable as error:
            if beginning is not None:
                raise
            trouble = str(error)
            _log.warning(
                "event-store-skipped: the event store cannot be reached; starting without it: "
                "%(error)s",
                {"error": error},
            )
        if beginning is not None:
            record_beginning(beginning, events)
            forget_beginning(disk, store.paths)
        mirror = ConfigMirror(disk, store.paths)
        # An unreachable event store is not queried again here; the projector retries it later.
        recovered = recover_control(store, None if trouble else events, mirror, settings)
        delays = mirror.delays(known=store.queue_range(*PROGRESS_TARGET) is not None)
    except BaseException:
        if events is not None:
            events.close()
        store.close()
        raise
    return OpenStore(store, mirror, events, trouble, recovered, delays)


def _event_store(settings: BrokerSettings, paths: StorePaths) -> EventStore:
    """Return the event store.

    Only an external database needs an owner name, because several brokers may share it.
    """
    owner = ""
    if settings.event_store_url:
        places = settings.cluster_name, settings.broker_name, str(settings.broker_id)
        owner = "/".join(places)
    return EventStore(Database(_event_store_url(settings, paths)), owner)


def _event_store_url(settings: BrokerSettings, paths: StorePaths) -> str:
    if settings.event_store_url:
        return with_password(settings.event_store_url, settings.event_store_password_file)
    return sqlite_url(paths.events)


def _refused(error: ConfigError | Corrupt) -> ConfigError | Corrupt:
    """Return the error with a hint that the database can be rebuilt."""
    hint = MOVE_AWAY
    if isinstance(error, ConfigError):
        hint = f"{error.hint}, or {MOVE_AWAY}"
    return type(error)(error.message, hint=f"{hint}; nothing was changed")
