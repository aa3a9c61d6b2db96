"""`format("kourou")`: Spark's entry point for reads and writes, and its registration."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from kourou.errors import BadRequest
from kourou_spark_etl.sink.columns import check_columns
from kourou_spark_etl.sink.options import write_options
from kourou_spark_etl.sink.writers import BatchWriter, StreamWriter
from kourou_spark_etl.source.arrow_rows import SCHEMA_DDL, wanted_columns
from kourou_spark_etl.source.options import for_batch, for_stream, read_options
from kourou_spark_etl.source.readers import BatchReader, StreamReader

FORMAT = "kourou"
_KNOWN = "DATA_SOURCE_ALREADY_EXISTS"

_PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
"""Disabled by default in Spark; then it rejects sources that support filters."""


class KourouDataSource(DataSource):
    """Topics as tables: Spark's entry point for reads and writes."""

    @classmethod
    def name(cls) -> str:
        """The name for `format`."""
        return FORMAT

    def schema(self) -> str:
        """The columns of a read. Validates the options, before any broker is contacted."""
        read_options(self.options)
        return SCHEMA_DDL

    def reader(self, schema: StructType) -> DataSourceReader:
        """The reader of a batch query."""
        return BatchReader(for_batch(read_options(self.options)), wanted_columns(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """The reader of a streaming query."""
        return StreamReader(for_stream(read_options(self.options)), wanted_columns(schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """The writer of a batch query."""
        return batch_writer(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """The writer of a streaming query."""
        return stream_writer(self.options, schema, overwrite)


def batch_writer(
    options: Mapping[str, str], schema: StructType, overwrite: bool
) -> DataSourceArrowWriter:
    """The writer of one `save()`. Raises BadRequest for invalid options or columns."""
    _require_append(overwrite)
    parsed = write_options(options)
    return BatchWriter(parsed, check_columns(schema, parsed))


def stream_writer(
    options: Mapping[str, str], schema: StructType, overwrite: bool
) -> DataSourceStreamArrowWriter:
    """The writer of a query's batches. Raises BadRequest as `batch_writer`."""
    _require_append(overwrite)
    parsed = write_options(options)
    if parsed.app_id:
        raise BadRequest(
            "the option 'txnAppId' is for batches only: a stream has its own ID and batch numbers"
        )
    return StreamWriter(parsed, check_columns(schema, parsed))


def _require_append(overwrite: bool) -> None:
    if overwrite:
        raise BadRequest(
            "a topic cannot be overwritten", hint='write with mode("append"); streams always append'
        )


def register(spark: SparkSession) -> None:
    """Register `format("kourou")` with a session; repeated calls are harmless."""
    spark.conf.set(_PUSHDOWN, "true")
    try:
        spark.dataSource.register(KourouDataSource)
    except AnalysisException as error:
        # A session derived from a registered one, such as that of a batch in foreachBatch.
        if error.getCondition() != _KNOWN:
            raise
