"""The key/value settings that clients can read, namespace -> key -> value, and their storage.

A name server has no commit log, so its event store is authoritative and has the history.
`kvConfig.json` is its projection in RocketMQ's format, so that a RocketMQ name server can be
started on it. If another program changed the file, the hashes in `<name>.written` differ, and the
changes are imported as events. SQLAlchemy is loaded only if there are settings to store: most name
servers have none.

A change is decided, the service makes its events durable, and then the handler replies. One change
is in progress at a time, because each is decided on the state after the previous one.

State: a log (KeyValuePut and KeyValueDeleted) and its projections: `KeyValues`, which `evolve`
changes in place, and the file; soft: the queue of changes.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import msgspec

from kourou.clock import Clock
from kourou.errors import (
    BadRequest,
    Code,
    ConfigError,
    DecodeError,
    KourouError,
    MetadataUnavailable,
)
from kourou.events.control_events import Cause, Event, KeyValueDeleted, KeyValuePut, Recorded
from kourou.events.stream import StreamKind
from kourou.model.limits import (
    KEY_VALUE_FILE_BYTES_MAX,
    KEY_VALUE_LENGTH_MAX,
    KEY_VALUE_WRITES_WAITING_MAX,
    SETTING_LENGTH_MAX,
)
from kourou.protocol.messages.namesrv import DeleteKvConfig, PutKvConfig
from kourou.protocol.wire import lenient_json
from kourou.runtime import Received, Reply
from kourou.store.config.durable_files import SharedFiles
from kourou.store.disk import as_store_error
from kourou.store.real_disk import RealDisk

if TYPE_CHECKING:
    from kourou.eventstore.event_store import EventStore


SNAPSHOT_FORMAT = 1


@dataclass(slots=True)
class KeyValues:
    """The table after the first `next_offset` events. It contains no empty namespace."""

    table: dict[str, dict[str, str]] = field(default_factory=dict)
    next_offset: int = 0
    at_ms: int = 0

    def get(self, namespace: str, key: str) -> str | None:
        """The value, or None if the key is missing."""
        return self.table.get(namespace, {}).get(key)

    def copy(self) -> KeyValues:
        """An independent copy."""
        table = {namespace: dict(keys) for namespace, keys in self.table.items()}
        return KeyValues(table, self.next_offset, self.at_ms)


def evolve(state: KeyValues, recorded: Recorded) -> KeyValues:
    """Apply one event in place and return the same object; events of other types change nothing."""
    match recorded.event:
        case KeyValuePut(namespace, key, value):
            state.table.setdefault(namespace, {})[key] = value
        case KeyValueDeleted(namespace, key):
            keys = state.table.get(namespace, {})
            keys.pop(key, None)
            if not keys:
                state.table.pop(namespace, None)
    state.next_offset = recorded.offset + 1
    state.at_ms = max(state.at_ms, recorded.at_ms)
    return state


def decide_put(state: KeyValues, namespace: str, key: str, value: str) -> list[Event]:
    """The events that set a key. Raises BadRequest."""
    _check("namespace", namespace, SETTING_LENGTH_MAX)
    _check("key", key, SETTING_LENGTH_MAX)
    _check("value", value, KEY_VALUE_LENGTH_MAX)
    before = state.get(namespace, key)
    return [] if before == value else [KeyValuePut(namespace, key, value, before)]


def decide_delete(state: KeyValues, namespace: str, key: str) -> list[Event]:
    """The events that delete a key; a missing key is not an error, as in RocketMQ."""
    before = state.get(namespace, key)
    return [] if before is None else [KeyValueDeleted(namespace, key, before)]


def decide_import(state: KeyValues, table: Mapping[str, Mapping[str, str]]) -> list[Event]:
    """The events that change the state to that of an imported table."""
    events: list[Event] = []
    for namespace in sorted(state.table.keys() | table.keys()):
        old, new = state.table.get(namespace, {}), table.get(namespace, {})
        events += (KeyValueDeleted(namespace, key, old[key]) for key in sorted(old.keys() - new))
        for key in sorted(new):
            if old.get(key) != new[key]:
                events.append(KeyValuePut(namespace, key, new[key], old.get(key)))
    return events


def _check(what: str, text: str, length_max: int) -> None:
    if not 0 < len(text) <= length_max or not text.isprintable():
        raise BadRequest(f"the {what} must be 1 to {length_max} printable characters")


class _Snapshot(msgspec.Struct):
    format: int
    next_offset: int
    at_ms: int
    table: dict[str, dict[str, str]]


_ENCODER = msgspec.json.Encoder(order="sorted")


def encode_state(state: KeyValues) -> bytes:
    """The state as JSON; equal states give equal bytes."""
    return _ENCODER.encode(_Snapshot(SNAPSHOT_FORMAT, state.next_offset, state.at_ms, state.table))


def decode_state(snapshot: bytes) -> KeyValues:
    """Decode the output of `encode_state`. Raises DecodeError."""
    try:
        read = msgspec.json.decode(snapshot, type=_Snapshot)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DecodeError(f"the snapshot cannot be read: {error}") from error
    if read.format != SNAPSHOT_FORMAT:
        raise DecodeError(
            f"the snapshot has format {read.format}; this version reads {SNAPSHOT_FORMAT}"
        )
    return KeyValues(read.table, read.next_offset, read.at_ms)


KEY_VALUES = StreamKind("key-values", KeyValues, evolve, encode_state, decode_state)
"""The key/value stream of a name server."""


# -- storage ---------------------------------------------------------------------------------------

_log = logging.getLogger("kourou.namesrv")

Table = Mapping[str, Mapping[str, str]]


class KeyValueStore:
    """The key/value settings on disk; `path` is that of `kvConfig.json`. Not thread-safe."""

    def __init__(self, path: Path, url: str | None, clock: Clock) -> None:
        self._path = path
        self._url = url
        self._clock = clock
        self._database = path.with_name("namesrv.db")
        self._events: EventStore | None = None
        self._state = KeyValues()

    def load(self) -> KeyValues:
        """Return a copy of the stored settings, after importing external changes of the file.

        Raises ConfigError if the file cannot be read.
        """
        self._warn_of_place()
        if self._url or self._database.exists():
            self._state, _ = self._opened().load(KEY_VALUES)
        external = self._read_external()
        events = [] if external is None else decide_import(self._state, external)
        if events:
            cause = Cause("name server", "imported from kvConfig.json, which another program wrote")
            self.record(events, self._state.next_offset, cause)
        if self._state.next_offset:
            self.write()
        return self._state.copy()

    def record(self, events: Sequence[Event], expected_offset: int, cause: Cause) -> list[Recorded]:
        """Make events durable. Raises MetadataUnavailable if the database does not accept them."""
        now_ms = self._clock.now_ms()
        found = self._opened().record(
            KEY_VALUES, events, expected_offset=expected_offset, wall_ms=now_ms, cause=cause
        )
        unknown = self._opened().events(after=self._state.next_offset - 1, stream=KEY_VALUES.name)
        for recorded in unknown:  # includes events of other writers
            self._state = KEY_VALUES.evolve(self._state, recorded)
        return found

    def write(self) -> None:
        """Write `kvConfig.json`. Raises DiskFull or StoreFaulted if that fails."""
        content = lenient_json.dumps({"configTable": self._state.table})
        try:
            self._files().save(self._path.name, content, _decode)
        except OSError as error:
            raise as_store_error(error, f"writing {self._path}") from error

    def close(self) -> None:
        """Close the database; a write that waits for it ends."""
        if self._events is not None:
            self._events.close()

    def _opened(self) -> EventStore:
        if self._events is None:
            from kourou.eventstore.database import sqlite_url
            from kourou.eventstore.event_store import EventStore

            try:
                self._database.parent.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                where = self._database.parent
                raise MetadataUnavailable(f"{where} cannot be made: {error.strerror}") from error
            self._events = EventStore.open(self._url or sqlite_url(self._database))
        return self._events

    def _warn_of_place(self) -> None:
        """Warn if the folder is not writable: only changes need it, so the service starts."""
        place = self._path.parent
        while not place.exists() and place != place.parent:
            place = place.parent
        try:
            TemporaryDirectory(prefix=".kourou-", dir=place).cleanup()
        except OSError as error:
            _log.warning(
                "kv-folder-locked: kvConfigPath is %(path)s, but %(folder)s is not writable "
                "(%(error)s): changes of key/value settings will be rejected",
                {"path": self._path, "folder": place, "error": error.strerror},
            )

    def _files(self) -> SharedFiles:
        written = self._path.with_name(f"{self._path.name}.written")
        return SharedFiles(RealDisk(), self._path.parent, written, KEY_VALUE_FILE_BYTES_MAX)

    def _read_external(self) -> Table | None:
        """The table of the file if another program wrote it; otherwise None."""
        try:
            files = self._files()
            content = files.read(self._path.name)
            return _decode(content) if content and files.external([self._path.name]) else None
        except OSError as error:
            raise ConfigError(f"cannot read {self._path}: {error.strerror}") from error
        except DecodeError as error:
            raise ConfigError(
                f"{self._path} is damaged: {error}", hint="restore it from its .bak file"
            ) from error


def _decode(content: bytes) -> Table:
    try:
        read = msgspec.convert(lenient_json.loads(content), dict[str, dict[str, dict[str, str]]])
    except msgspec.ValidationError as error:
        raise DecodeError(f"not a table of key/value settings: {error}") from error
    return read.get("configTable", {})


@dataclass(frozen=True, slots=True)
class Own:
    """A change that the name server itself makes, and its reason."""

    put: PutKvConfig
    reason: str


Asked = Received | Own
"""The origin of a change: a request, which gets a reply, or the name server itself."""


@dataclass(frozen=True, slots=True)
class RecordKeyValues:
    """Effect: make these events durable, then post KeyValuesWritten."""

    events: Sequence[Event]
    expected_offset: int
    cause: Cause
    request: Asked


@dataclass(frozen=True, slots=True)
class KeyValuesWritten:
    """Input: the events are durable, or `error` prevented the change."""

    recorded: Sequence[Recorded]
    error: KourouError | None
    request: Asked


class KeyValueHandler:
    """Accepts changes and creates the replies. `key_values` is the durable state."""

    def __init__(self, key_values: KeyValues) -> None:
        self.key_values = key_values
        self._writing = False
        self._waiting: deque[Asked] = deque()

    def change(self, received: Received) -> list[Reply | RecordKeyValues]:
        """Queue a PUT_KV_CONFIG or DELETE_KV_CONFIG request; SYSTEM_BUSY if too many wait."""
        if len(self._waiting) >= KEY_VALUE_WRITES_WAITING_MAX:
            return [Reply(received.to, Code.SYSTEM_BUSY, "too many changes are waiting")]
        self._waiting.append(received)
        return self._next()

    def keep(
        self, namespace: str, key: str, value: str, reason: str
    ) -> list[Reply | RecordKeyValues]:
        """Store a value for the name server itself. If the queue is full, the change is dropped and
        the caller must repeat it later.
        """
        own = Own(PutKvConfig(namespace=namespace, key=key, value=value), reason)
        if own in self._waiting or len(self._waiting) >= KEY_VALUE_WRITES_WAITING_MAX:
            return []
        self._waiting.append(own)
        return self._next()

    def written(self, done: KeyValuesWritten) -> list[Reply | RecordKeyValues]:
        """Apply the durable events, reply to the request, and start the next change."""
        for recorded in done.recorded:
            self.key_values = evolve(self.key_values, recorded)
        self._writing = False
        return [*_answer(done.request, done.error), *self._next()]

    def _next(self) -> list[Reply | RecordKeyValues]:
        effects: list[Reply | RecordKeyValues] = []
        while self._waiting and not self._writing:
            asked = self._waiting.popleft()
            try:
                events = self._decide(asked.put if isinstance(asked, Own) else asked.request)
            except KourouError as error:
                effects += _answer(asked, error)
                continue
            if events:
                self._writing = True
                offset = self.key_values.next_offset
                effects.append(RecordKeyValues(events, offset, _cause(asked), asked))
            else:
                effects += _answer(asked, None)
        return effects

    def _decide(self, request: object) -> list[Event]:
        if isinstance(request, PutKvConfig):
            return decide_put(self.key_values, request.namespace, request.key, request.value)
        assert isinstance(request, DeleteKvConfig), request
        return decide_delete(self.key_values, request.namespace, request.key)


def _answer(asked: Asked, error: KourouError | None) -> list[Reply | RecordKeyValues]:
    """The reply to a request. The name server's own changes get none; a failed one is repeated when
    the next registration requires it.
    """
    if isinstance(asked, Own):
        return []
    return [Reply(asked.to, error.wire_code, str(error)) if error else Reply(asked.to)]


def _cause(asked: Asked) -> Cause:
    if isinstance(asked, Own):
        return Cause("name server", asked.reason)
    trace_id = asked.trace[:16].hex() if any(asked.trace) else ""
    return Cause(asked.actor, trace_id=trace_id)
