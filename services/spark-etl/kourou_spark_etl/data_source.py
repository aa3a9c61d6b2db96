"""Registers `format("kourou")` with Spark."""

from __future__ import annotations

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from kourou_spark_etl.sink import batch_writer, stream_writer
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


def register(spark: SparkSession) -> None:
    """Register `format("kourou")` with a session; repeated calls are harmless."""
    spark.conf.set(_PUSHDOWN, "true")
    try:
        spark.dataSource.register(KourouDataSource)
    except AnalysisException as error:
        # A session derived from a registered one, such as that of a batch in foreachBatch.
        if error.getCondition() != _KNOWN:
            raise
