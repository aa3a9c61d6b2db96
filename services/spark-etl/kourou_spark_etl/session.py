"""The one way to a Spark session: for the service, its jobs, the benchmark and the tests.

A session is local (`local[2]`) or on a cluster (`spark://host:7077`) by its master alone. Spark's
Python processes run the interpreter that runs this, so that they find this package; workers of a
cluster have it at the same path, or the variable PYSPARK_PYTHON says where all of them have one.

State: none; Spark keeps the first session of a process.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import SparkSession

from kourou.errors import ConfigError
from kourou_spark_etl.data_source import register
from kourou_spark_etl.machine import JAVA_MIN, lacking_java

DRIVER_MEMORY = "1g"
"""Enough: rows are in Python and in Arrow, outside of the heap."""

MASTER = "local[2]"
_LOG_CONFIG = Path(__file__).with_name("log4j2.properties")


def missing_java() -> str:
    """Why Spark cannot start on this machine, in one line with what to do; empty if it can."""
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
    """A session that knows `format("kourou")`; the process's own one if it has one already.

    `settings` are Spark's, above those here. `class_archive` is a file that Java makes at the end
    of a first session and reads at the start of later ones, which then start in half the time.
    Raises ConfigError where Java is missing.
    """
    problem = missing_java()
    if problem:
        raise ConfigError(problem)
    # Spark starts tasks with the Python of that name: on a cluster it lies at the same place.
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
    told = {
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
        told.setdefault("spark.driver.bindAddress", "127.0.0.1")
        told.setdefault("spark.driver.host", "127.0.0.1")
    builder = SparkSession.builder.master(master).appName(name)
    for key, value in told.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    register(spark)
    return spark


def stream_session(spark: SparkSession) -> SparkSession:
    """A session of its own for one more stream of this process; it knows `format("kourou")`.

    It is that of this thread from now on (see `use_here`).

    Spark (4.3) keeps the environment of a source's Python processes in one map for all streams of a
    session, and every stream writes to it when it starts, without a lock: two that start at once
    can spoil it for good. Then each task of both fails with java.io.OptionalDataException.
    """
    own = spark.newSession()
    use_here(own)
    register(own)
    return own


def use_here(spark: SparkSession) -> None:
    """Let this thread look formats up in that session.

    Spark looks a Python format up in the session that its thread used last, whichever session the
    reader or writer was taken from. This call is one that sets it.
    """
    spark.createDataFrame([], "nothing INT")
