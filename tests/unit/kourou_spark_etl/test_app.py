"""What the service does beside its queries, without Spark: hearing, compacting, its end."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kourou.errors import ConfigError, Corrupt, MetadataUnavailable, Unavailable
from kourou.eventstore.event_store import EventStore
from kourou_spark_etl import lake_files, queries
from kourou_spark_etl.app import SparkEtlService
from kourou_spark_etl.batch_events import STREAM, BatchWritten, of_recorded
from kourou_spark_etl.config import EtlSettings
from kourou_spark_etl.progress import BatchProgress
from kourou_spark_etl.read_model.read_model import QueryBatch, RecordedBatch
from kourou_spark_etl.runner import QueryPhase

JOBS = """
[queries.lake]
job = "lake"
subscribe = "orders"
[queries.lake.options]
compact = "1 second"
file_mib = 2

[queries.letters]
job = "dead_letters"
"""
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"


class Spans:
    """Notes what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, int, str]] = []

    def batch(self, done: BatchProgress, job: str) -> str:
        self.told.append((done.query, done.batch_id, job))
        return TRACE


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Any]:
    jobs = tmp_path / "jobs.toml"
    jobs.write_text(JOBS)
    made: Any = SparkEtlService(EtlSettings(root=tmp_path, job_file=jobs))
    with databases(made):
        made._spans = Spans()
        yield made


@contextmanager
def databases(service: Any) -> Iterator[None]:
    service._open_databases()
    yield
    service._events.close()
    service._read_model.close()


def done(query: str, batch_id: int, rows: int = 4) -> BatchProgress:
    return BatchProgress(query, "id", batch_id, rows, 1_000, 50)


def events_of(service: Any) -> list[tuple[BatchWritten, str]]:
    store = EventStore.at(service._settings.folder / "events.db")
    found = [
        (event, recorded.trace_id)
        for recorded in store.events(stream=STREAM)
        if isinstance(event := of_recorded(recorded), BatchWritten)
    ]
    store.close()
    return found


def written(service: Any) -> list[RecordedBatch]:
    return [
        RecordedBatch(one.query, one.query_id, one.batch_id, one.rows, 0)
        for one in service._read_model.batches()
    ]


def test_a_batch_is_a_span_an_event_and_a_number(service: Any) -> None:
    letters = [{"consumer_group": "g", "reason": "r", "origin_topic": "t"}]
    row = {**letters[0], "letters": 9, "first_ms": 1, "last_ms": 2}
    service._read_model.write(QueryBatch("letters", "id", 0, 1_000), {"dead_letters": [row]})
    service._heard(done("letters", 0, rows=9))
    service._heard(done("lake", 0))
    assert service._spans.told == [("letters", 0, "dead_letters"), ("lake", 0, "lake")]
    assert events_of(service) == [
        (BatchWritten("letters", "id", 0, 1), TRACE),  # rows of the table, not messages
        (BatchWritten("lake", "id", 0, 4), TRACE),
    ]
    assert written(service) == [
        RecordedBatch("lake", "id", 0, 4, 0),
        RecordedBatch("letters", "id", 0, 1, 0),
    ]


def test_events_that_a_store_did_not_take_are_written_before_the_next(
    service: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object, **__: object) -> Any:
        raise MetadataUnavailable("the event store is away")

    service._heard(done("lake", 0))
    with monkeypatch.context() as patched:
        patched.setattr(EventStore, "record", away)
        service._heard(done("lake", 1))
        service._heard(done("lake", 2))
    service._heard(done("lake", 3))
    assert [event.batch_id for event, _ in events_of(service)] == [0, 1, 2, 3]


def test_batches_of_a_lake_that_nobody_heard_of_are_noted_at_the_next_start(
    service: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    service._heard(done("lake", 0))
    asked: list[tuple[Path, Path, RecordedBatch | None]] = []

    def committed(*of: Any) -> Iterator[tuple[str, int, int]]:
        asked.append(of)
        yield "id", 1, 7

    monkeypatch.setattr(queries, "unreported_batches", committed)
    with databases(SparkEtlService(service._settings)):
        pass
    root = service._settings.folder
    ((checkpoint, lake, last),) = asked
    assert (checkpoint, lake) == (root / "checkpoints" / "lake", root / "lake" / "lake")
    assert last is not None
    assert last.batch_id == 0
    events = [event for event, _ in events_of(service)]
    assert events == [BatchWritten("lake", "id", 0, 4), BatchWritten("lake", "id", 1, 7)]


def test_a_damaged_checkpoint_does_not_keep_the_service_from_starting(service: Any) -> None:
    checkpoint = service._settings.folder / "checkpoints" / "lake"
    (checkpoint / "commits").mkdir(parents=True)
    (checkpoint / "metadata").write_text("{")
    with databases(SparkEtlService(service._settings)):
        pass


async def test_lakes_are_compacted_and_an_error_is_not_the_last_time(
    service: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[tuple[Path, Mapping[str, Any]]] = []
    enough = asyncio.Event()
    loop = asyncio.get_running_loop()

    def compact(folder: Path, **more: Any) -> Any:
        calls.append((folder, more))
        if len(calls) == 1:
            raise Corrupt("a log that is damaged")
        loop.call_soon_threadsafe(enough.set)
        return SimpleNamespace(made=0, deleted=0)

    slept: list[float] = []
    real_sleep = asyncio.sleep

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        await real_sleep(0)

    monkeypatch.setattr(lake_files, "compact", compact)
    monkeypatch.setattr(asyncio, "sleep", sleep)
    task = asyncio.create_task(service._compact(service._specs["lake"]))
    await enough.wait()
    task.cancel()
    folder, more = calls[0]
    assert folder == service._settings.folder / "lake" / "lake"
    assert more["file_bytes"] == 2 << 20
    assert slept[:2] == [1.0, 1.0]


async def test_a_service_without_java_ends(service: Any) -> None:
    failures: list[BaseException] = []
    service._fail = failures.append
    process = SimpleNamespace(poll=lambda: 137, returncode=137)
    gateway = SimpleNamespace(proc=process)
    service._spark = SimpleNamespace(sparkContext=SimpleNamespace(_gateway=gateway))
    await service._watch_java()
    (failure,) = failures
    assert isinstance(failure, Unavailable)
    assert "Java process ended with exit code 137" in str(failure)


async def test_each_query_has_a_session_of_its_own_that_is_listened_to(
    service: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Streams of one session share what Spark changes when they start."""
    made: list[Any] = []
    runners: dict[str, Any] = {}

    def stream_session(spark: Any) -> Any:
        assert spark is service._spark
        heard: list[Any] = []
        made.append(SimpleNamespace(heard=heard, streams=SimpleNamespace(addListener=heard.append)))
        return made[-1]

    class Runner:
        def __init__(self, spec: Any, state: Any, bench: Any, *_: Any) -> None:
            runners[spec.name] = bench.spark

        def start(self) -> None:
            """Nothing runs here."""

    async def nothing(*_: Any) -> None:
        """Nothing is compacted or watched here."""

    monkeypatch.setattr("kourou_spark_etl.session.stream_session", stream_session)
    monkeypatch.setattr("kourou_spark_etl.runner.QueryRunner", Runner)
    monkeypatch.setattr(service, "_compact", nothing)
    monkeypatch.setattr(service, "_watch_java", nothing)
    service._spark = SimpleNamespace()
    await service.serve()
    await asyncio.gather(*service._tasks)
    assert list(runners) == ["lake", "letters"]
    assert runners["lake"] is made[0]
    assert runners["letters"] is made[1]
    assert [len(session.heard) for session in made] == [1, 1]


def test_it_is_ready_when_it_serves_and_all_queries_that_are_on_work(service: Any) -> None:
    assert service._unready() == "not serving"
    service._serving = True
    assert service._unready() == "lake: waiting; letters: waiting"
    lake, letters = service._states
    letters.phase = QueryPhase.OFF
    lake.running()
    lake.progressed()
    assert service._unready() == ""


async def test_a_second_service_in_the_same_folder_is_refused(
    service: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = service._settings.folder
    service._claim(folder)
    second: Any = SparkEtlService(service._settings)
    monkeypatch.setattr("kourou_spark_etl.app.check_machine", lambda: None)
    with pytest.raises(ConfigError, match="another Spark service uses"):
        await second.recover(lambda error: None)
    service._lock.release()
    second._claim(folder)
    second._lock.release()


@pytest.mark.parametrize(("master", "mode"), [("local[2]", 0o700), ("spark://m:7077", 0o777)])
def test_a_new_folder_is_for_who_writes_there(tmp_path: Path, master: str, mode: int) -> None:
    jobs = tmp_path / "jobs.toml"
    jobs.write_text(JOBS)
    folder = tmp_path / "etl"
    service: Any = SparkEtlService(EtlSettings(root=folder, master=master, job_file=jobs))
    before = os.umask(0)
    try:
        service._claim(folder)
    finally:
        os.umask(before)
    service._lock.release()
    assert folder.stat().st_mode & 0o777 == mode


# -- what several settings say together ------------------------------------------------------------


def test_everything_lies_below_one_folder(tmp_path: Path) -> None:
    settings = EtlSettings(root=tmp_path)
    assert settings.read_model == f"sqlite:///{tmp_path}/read-model.db"
    assert settings.event_store == f"sqlite:///{tmp_path}/events.db"
    assert settings.session_settings["spark.local.dir"] == str(tmp_path / "spark")


def test_sparks_own_settings_go_above_ours() -> None:
    settings = EtlSettings(spark_options="spark.scheduler.mode=FIFO; spark.x.y=a=b")
    assert settings.session_settings["spark.scheduler.mode"] == "FIFO"
    assert settings.session_settings["spark.x.y"] == "a=b"
    with pytest.raises(ConfigError, match="sparkOptions"):
        EtlSettings(spark_options="shuffle=3")


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(ConfigError, match="readModelPasswordFile"):
        EtlSettings(read_model_password_file=Path("secret"))
    with pytest.raises(ConfigError, match="jobFile is not set"):
        EtlSettings().wanted_job_file  # noqa: B018 - asked for what it raises
    with pytest.raises(ConfigError, match="insecureNetwork"):
        EtlSettings(admin_host="0.0.0.0")


def test_its_keys_reach_whoever_reads_and_writes_for_it(tmp_path: Path) -> None:
    """Clients in this process and in Spark's find them in their environment."""
    own, servers = tmp_path / "own.key_secret", tmp_path / "public"
    settings = EtlSettings(curve_key_file=own, curve_server_key=servers)
    assert settings.curve_environment == {
        "KOUROU_CURVE_KEY_FILE": str(own),
        "KOUROU_CURVE_SERVER_KEY": str(servers),
    }
    for name, value in settings.curve_environment.items():
        assert settings.session_settings[f"spark.executorEnv.{name}"] == value
    assert EtlSettings().curve_environment == {}
    with pytest.raises(ConfigError, match="curveServerKey is not"):
        EtlSettings(curve_key_file=own)
