"""A name server's key/value table."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kourou.errors import BadRequest, ConfigError, DecodeError, MetadataUnavailable
from kourou.events.control_events import (
    Cause,
    Event,
    EventLost,
    KeyValueDeleted,
    KeyValuePut,
    Recorded,
)
from kourou.events.stream import WrittenMeanwhile
from kourou_namesrv import key_values
from kourou_namesrv.key_values import KEY_VALUES, KeyValues, KeyValueStore
from kourou_rigs.clock import ManualClock


def apply(state: KeyValues, events: list[Event], at_ms: int = 5) -> KeyValues:
    for event in events:
        KEY_VALUES.evolve(state, Recorded(state.next_offset, -1, at_ms, "", "", "", event))
    return state


@pytest.mark.parametrize(
    ("namespace", "key", "value"),
    [("", "k", "v"), ("N", "", "v"), ("N", "k", ""), ("N", "k\n", "v"), ("N", "k", "v" * 65_537)],
)
def test_what_is_empty_too_long_or_unprintable_is_refused(namespace: str, key: str, value: str):
    with pytest.raises(BadRequest):
        key_values.decide_put(KeyValues(), namespace, key, value)


def test_a_snapshot_is_the_state():
    state = apply(KeyValues(), [KeyValuePut("N", "k", "1"), EventLost("x")])
    taken = KEY_VALUES.snapshot(state)
    copy = state.copy()
    apply(state, [KeyValuePut("N", "k", "2", "1")])
    assert KEY_VALUES.decode(taken.body) == copy
    assert copy.get("N", "k") == "1"
    assert state.get("N", "k") == "2"


@pytest.mark.parametrize(
    "snapshot", [b"", b"[]", b'{"format":2,"next_offset":0,"at_ms":0,"table":{}}']
)
def test_what_is_no_snapshot_raises_decode_error(snapshot: bytes):
    with pytest.raises(DecodeError):
        KEY_VALUES.decode(snapshot)


@pytest.mark.fuzz
@given(
    st.binary(max_size=60)
    | st.dictionaries(
        st.sampled_from(["format", "next_offset", "nextOffset", "at_ms", "atMs", "table", "x"]),
        st.none()
        | st.integers()
        | st.text(max_size=5)
        | st.dictionaries(st.text(max_size=3), st.text(max_size=3) | st.integers(), max_size=2),
    ).map(lambda value: json.dumps(value).encode())
)
def test_any_bytes_are_a_snapshot_or_a_decode_error(snapshot: bytes):
    with suppress(DecodeError):
        assert isinstance(KEY_VALUES.decode(snapshot), KeyValues)


# -- key/value settings are kept, whoever wrote them last ------------------------------------------


CAUSE = Cause("test")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "namesrv" / "kvConfig.json"


def opened(path: Path) -> KeyValueStore:
    return KeyValueStore(path, None, ManualClock())


@contextmanager
def living(path: Path) -> Iterator[tuple[KeyValueStore, KeyValues]]:
    """The store of one life of a process, and what it found."""
    store = opened(path)
    try:
        yield store, store.load()
    finally:
        store.close()


def put(store: KeyValueStore, offset: int, *events: Event) -> None:
    store.record(events, offset, CAUSE)
    store.write()


def table_in(path: Path) -> object:
    return json.loads(path.read_bytes())["configTable"]


def test_a_folder_where_nothing_can_be_stored_is_logged_at_the_start(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = opened(Path("/proc/namesrv/kvConfig.json"))  # where not even root makes a directory
    assert store.load().table == {}
    assert "/proc is not writable (" in caplog.text
    with pytest.raises(MetadataUnavailable, match="cannot be made"):
        store.record([KeyValuePut("N", "a", "1")], 0, CAUSE)
    store.close()


def test_nothing_to_keep_makes_no_file_and_says_nothing(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with living(path) as (_, found):
        assert found.table == {}
    assert list(path.parents[1].iterdir()) == []
    assert not caplog.records


@pytest.mark.feature("F023")
def test_what_was_recorded_is_there_again_in_rocketmqs_format(path: Path) -> None:
    with living(path) as (store, _):
        put(store, 0, KeyValuePut("ORDER_TOPIC_CONFIG", "TO", "broker-a:4"))
    assert path.read_bytes() == b'{"configTable":{"ORDER_TOPIC_CONFIG":{"TO":"broker-a:4"}}}'
    with living(path) as (_, found):
        assert found.table == {"ORDER_TOPIC_CONFIG": {"TO": "broker-a:4"}}
        assert found.next_offset == 1


@pytest.mark.feature("F023")
def test_a_file_of_rocketmq_is_taken_over_with_a_history(path: Path) -> None:
    path.parent.mkdir()
    path.write_text('{"configTable":{"N":{"a":"1","b":"2"}}}')
    with living(path) as (_, found):
        assert found.table == {"N": {"a": "1", "b": "2"}}
    path.write_text('{\n\t"configTable":{"N":{"b":"3"},\n"M":{"c":"4"}}\n}')
    with living(path) as (_, found):
        assert found.table == {"N": {"b": "3"}, "M": {"c": "4"}}
        assert found.next_offset == 5


@pytest.mark.fault
def test_a_crash_between_database_and_file_loses_nothing(path: Path) -> None:
    with living(path) as (store, _):
        put(store, 0, KeyValuePut("N", "a", "1"))
        store.record([KeyValuePut("N", "a", "2", "1"), KeyValuePut("N", "b", "3")], 1, CAUSE)
    assert table_in(path) == {"N": {"a": "1"}}, "killed before the file was written"
    with living(path) as (_, found):
        assert found.table == table_in(path) == {"N": {"a": "2", "b": "3"}}


@pytest.mark.fault
def test_a_crash_between_hashes_and_file_is_not_foreign(path: Path) -> None:
    with living(path) as (store, _):
        put(store, 0, KeyValuePut("N", "a", "1"))
        old = path.read_bytes()
        put(store, 1, KeyValueDeleted("N", "a", "1"))
    path.write_bytes(old)  # the hashes were written, the file was not
    with living(path) as (_, found):
        assert found.table == {}


def test_a_lost_database_comes_back_from_the_file_without_history(path: Path) -> None:
    with living(path) as (store, _):
        put(store, 0, KeyValuePut("N", "a", "1"))
    (path.parent / "namesrv.db").unlink()
    path.with_name("kvConfig.json.written").unlink()
    with living(path) as (_, found):
        assert found.table == {"N": {"a": "1"}}


def test_the_former_file_is_kept_beside(path: Path) -> None:
    with living(path) as (store, _):
        put(store, 0, KeyValuePut("N", "a", "1"))
        put(store, 1, KeyValuePut("N", "a", "2", "1"))
    assert table_in(path.with_name("kvConfig.json.bak")) == {"N": {"a": "1"}}


@pytest.mark.parametrize("content", ['{"configTable":', "[1]", '{"configTable":{"N":{"a":1}}}'])
def test_a_damaged_file_is_refused(path: Path, content: str) -> None:
    path.parent.mkdir()
    path.write_text(content)
    with pytest.raises(ConfigError, match="is damaged"):
        opened(path).load()
    assert path.read_text() == content


def test_what_somebody_else_wrote_is_caught_up_with(path: Path) -> None:
    """Or what the database took without being able to say so."""
    with living(path) as (one, found), living(path) as (other, same):
        assert found == same
        put(one, 0, KeyValuePut("N", "a", "1"))
        with pytest.raises(WrittenMeanwhile, match="was changed in the meantime") as clash:
            put(other, 0, KeyValuePut("N", "b", "2"))
        assert [each.event for each in clash.value.missed] == [KeyValuePut("N", "a", "1")]
        put(other, 1, KeyValuePut("N", "b", "2"))
        assert table_in(path) == {"N": {"a": "1", "b": "2"}}


def test_the_state_it_gives_away_is_a_copy(path: Path) -> None:
    with living(path) as (store, found):
        put(store, 0, KeyValuePut("N", "a", "1"))
        assert found.table == {}


def test_importing_it_does_not_load_a_database_library() -> None:
    import subprocess

    code = "import sys, kourou_namesrv.app; sys.exit('sqlalchemy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
