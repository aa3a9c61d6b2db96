"""The key/value settings that clients can read: namespace -> key -> value.

State: projection of KeyValuePut and KeyValueDeleted. A name server has no commit log, so its event
store is the primary storage. `evolve` changes the object in place.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from kourou.errors import BadRequest, DecodeError
from kourou.events.control_events import Event, KeyValueDeleted, KeyValuePut, Recorded
from kourou.events.stream import StreamKind
from kourou.model.limits import KEY_VALUE_LENGTH_MAX, SETTING_LENGTH_MAX

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
        case _:
            pass
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
