"""The job file: what it declares, and the error for everything else."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from kourou.errors import ConfigError
from kourou_spark_etl import jobs
from kourou_spark_etl.job_file import JOBS, USUAL_JOBS, load_job_file, read_jobs
from kourou_spark_etl.jobs import read_flight_table

EXAMPLE = Path(__file__).parents[3] / "deploy" / "spark-etl.toml"


def query(text: str, name: str = "q") -> str:
    return f"[queries.{name}]\n{text}"


def test_the_example_shows_every_job() -> None:
    queries = load_job_file(EXAMPLE)
    assert {spec.job for spec in queries} == set(JOBS)
    lake = queries[0]
    assert lake.trigger_ms == 10_000
    assert lake.source == {
        "subscribePattern": "[^%].*",
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": "1000000",
        "group": "spark-lake",
    }
    assert lake.period_ms("grace") == 3_600_000
    assert lake.number("file_mib") == 128


def test_what_is_not_set_has_its_default() -> None:
    spec, letters, latency, backlog = read_jobs(
        query('job = "lake"\nsubscribe = "a,b"\nfail_on_data_loss = false', "one")
        + "\n"
        + query('job = "dead_letters"\ntrigger = "available now"\nenabled = false', "two")
        + "\n"
        + query('job = "latency"\nsubscribe = "a"', "three")
        + "\n"
        + query('job = "backlog"\nname_server = "h:1"', "four")
    )
    assert spec.source == {
        "subscribe": "a,b",
        "failOnDataLoss": "false",
        "startingOffsets": "earliest",
    }
    assert spec.trigger_ms == 5_000
    assert spec.enabled
    assert spec.text("path") == ""
    assert letters.source["subscribePattern"] == "%DLQ%.*"
    assert letters.trigger_ms is None
    assert not letters.enabled
    assert latency.source["subscribe"] == "a,RMQ_SYS_TRACE_TOPIC"
    assert latency.source["startingOffsets"] == "latest"
    assert backlog.source == {"nameServer": "h:1"}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "the file has no query"),
        ("queries = 3", "the file has no query"),
        ("[queries", "not valid TOML"),
        ("[query.q]\njob = 'lake'", "did you mean queries?"),
        ("[queries]\nq = 3", "queries.q is not a table"),
        (query("job = 'lake'\nsubscribe = 'a'", '"Q q"'), "lowercase letters"),
        (query("job = 'lakes'"), "queries.q.job is 'lakes'; it must be one of lake, latency"),
        (query("job = ['lake']"), "one of lake"),
        (query("job = 'lake'"), "queries.q has no topic"),
        (query("job = 'lake'\nsubscribe = 'a'\nassign = '{}'"), "has both subscribe and assign"),
        (query("job = 'lake'\nsubscribe = 5"), "queries.q.subscribe is 5; it must be a text"),
        (query("job = 'lake'\nsubscrible = 'a'"), "did you mean subscribe?"),
        (query("job = 'lake'\nsubscribe = 'a'\nmin_partitions = 0"), "between 1 and 100000"),
        (query("job = 'lake'\nsubscribe = 'a'\nmin_partitions = true"), "a whole number"),
        (query("job = 'lake'\nsubscribe = 'a'\ntrigger = '5 s'"), "queries.q.trigger is '5 s'"),
        (query("job = 'lake'\nsubscribe = 'a'\nenabled = 1"), "true or false"),
        (query("job = 'lake'\nsubscribe = 'a'\nname_server = 1"), "host:port"),
        (query("job = 'lake'\nsubscribe = 'a'\noptions = 1"), "queries.q.options is not a table"),
        (query("job = 'lake'\nsubscribe = 'a'\noptions.file_mb = 1"), "did you mean file_mib?"),
        (query("job = 'lake'\nsubscribe = 'a'\noptions.grace = '1 week'"), "a duration"),
        (query("job = 'backlog'\nsubscribe = 'a'"), "the unknown key 'subscribe'"),
        (query("job = 'latency'\nsubscribe_pattern = 'a'"), "by subscribe only"),
        (query("job = 'lake'\nsubscribe = 'or ders'"), "queries.q: the key 'subscribe' is"),
        (query("job = 'lake'\nsubscribe_pattern = '[a'"), "the key 'subscribe_pattern' is '[a'"),
        (query("job = 'lake'\nsubscribe = 'a'\nstarting_offsets = 'first'"), "starting_offsets"),
        (query("job = 'lake'\nsubscribe = 'a'\nsql = 'a >'"), "the key 'sql' is 'a >'"),
        (query("job = 'lake'\nsubscribe = 'a'\nname_server = 'a:b'"), "the key 'name_server'"),
        ("\n".join(query("job = 'backlog'", f"q{n}") for n in range(65)), "65 queries"),
    ],
)
def test_what_is_wrong_is_named(text: str, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_jobs(text)
    assert says in str(caught.value)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read job file"):
        load_job_file(tmp_path / "none.toml")
    path = tmp_path / "jobs.toml"
    path.write_bytes(b"\xff")
    with pytest.raises(ConfigError, match="not UTF-8"):
        load_job_file(path)
    path.write_bytes(b"#" * ((1 << 20) + 1))
    with pytest.raises(ConfigError, match="too large"):
        load_job_file(path)
    path.write_text("[queries.q]\njob = 3\n")
    with pytest.raises(ConfigError, match=r"jobs.toml: queries.q.job"):
        load_job_file(path)


def test_what_up_begins_with_is_what_the_example_has_enabled() -> None:
    usual = load_job_file(USUAL_JOBS)
    assert usual == tuple(spec for spec in load_job_file(EXAMPLE) if spec.enabled)


# -- the data set's small tables -------------------------------------------------------------------


def test_what_is_missing_is_none_and_the_first_of_a_key_counts(tmp_path: Path) -> None:
    (tmp_path / "weather.csv").write_text(
        "origin,year,precip,time_hour\n"
        "EWR,2013,0.5,2013-01-01T06:00:00Z\n"
        "EWR,2013,NA,2013-01-01T06:00:00Z\n"
        "JFK,2013,NA,2013-01-01T06:00:00Z\n"
    )
    hour = datetime(2013, 1, 1, 6, tzinfo=UTC)
    assert read_flight_table("weather", tmp_path) == [("EWR", hour, 0.5), ("JFK", hour, None)]


def test_the_data_set_has_them_all() -> None:
    assert ("UA", "United Air Lines Inc.") in read_flight_table("airlines")
    assert len(read_flight_table("planes")) == 3_322


def test_a_missing_data_set_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "DATA_SET", "no_such_data_set")
    with pytest.raises(ConfigError, match=r"requires the data set"):
        read_flight_table("planes")
