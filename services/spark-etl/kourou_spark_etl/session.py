"""Opens Spark sessions: for the service, its jobs, the benchmark and the tests.

The master alone decides whether a session is local (`local[2]`) or on a cluster
(`spark://host:7077`). Spark's Python workers run the same interpreter as this process, so that they
find this package. Workers of a cluster must have it at the same path, or the variable
PYSPARK_PYTHON must name a path that exists on all of them.

State: none; Spark keeps the first session of a process.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql.functions import count, lit

from kourou.errors import ConfigError
from kourou_spark_etl.data_source import register
from kourou_spark_etl.machine import JAVA_MIN, lacking_java

DRIVER_MEMORY = "1g"
"""Sufficient, because rows are in Python and in Arrow, outside of the heap."""

MASTER = "local[2]"
_LOG_CONFIG = Path(__file__).with_name("log4j2.properties")


def missing_java() -> str:
    """Why Spark cannot start on this machine and what to do, in one line; empty if it can."""
    for lack in lacking_java():
        return f"Spark requires Java {JAVA_MIN} or later and found {lack.what}: {lack.remedy}"
    return ""


def open_session(
    name: str = "kourou",
    *,
    master: str = MASTER,
    settings: Mapping[str, str] | None = None,
    class_archive: Path | None = None,
) -> SparkSession:
    """A session with `format("kourou")`; the existing session of this process if there is one.

    `settings` are Spark settings that override the ones here. `class_archive` is a file that Java
    writes at the end of a first session and reads at the start of later ones, which halves their
    start-up time. Raises ConfigError if Java is missing.
    """
    problem = missing_java()
    if problem:
        raise ConfigError(problem)
    # Spark starts tasks with this Python: on a cluster it must have the same path everywhere.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    options = [f"-Dlog4j2.configurationFile={_LOG_CONFIG.as_uri()}"]
    if class_archive is not None:
        options += [
            f"-XX:SharedArchiveFile={class_archive}",
            "-Xlog:cds=off",
            "-Xlog:cds+dynamic=off",
        ]
        if not class_archive.exists():
            options[1] = f"-XX:ArchiveClassesAtExit={class_archive}"
    configuration = {
        "spark.driver.memory": DRIVER_MEMORY,
        "spark.driver.extraJavaOptions": " ".join(options),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.mapKeyDedupPolicy": "LAST_WIN",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "4",
        **(settings or {}),
    }
    if master.startswith("local"):
        configuration.setdefault("spark.driver.bindAddress", "127.0.0.1")
        configuration.setdefault("spark.driver.host", "127.0.0.1")
    builder = SparkSession.builder.master(master).appName(name)
    for key, value in configuration.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    register(spark)
    return spark


def stream_session(spark: SparkSession) -> SparkSession:
    """A new session for one more stream of this process; it has `format("kourou")`.

    It becomes the session of this thread (see `use_here`).

    Spark (4.3) keeps the environment of a source's Python workers in one map for all streams of a
    session, and every stream writes to it when it starts, without a lock. Two streams that start at
    the same time can damage it permanently; then every task of both fails with
    java.io.OptionalDataException.
    """
    own = spark.newSession()
    use_here(own)
    register(own)
    return own


def use_here(spark: SparkSession) -> None:
    """Make this session the one in which the current thread looks up formats.

    Spark looks up a Python format in the session that its thread used last, whichever session the
    reader or writer comes from. This call sets that session.
    """
    spark.createDataFrame([], "nothing INT")


def read_through(frame: DataFrame) -> int:
    """Read every column of every row. Returns the number of rows."""
    seen = Observation()
    observed = frame.observe(seen, count(lit(1)).alias("rows"))
    observed.write.format("noop").mode("overwrite").save()
    return int(seen.get["rows"])
