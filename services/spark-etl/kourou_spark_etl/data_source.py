"""`format("kourou")`: what Spark is told of Kourou."""

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
from kourou_spark_etl.source.columns import SCHEMA_DDL, wanted_columns
from kourou_spark_etl.source.options import for_batch, for_stream, read_options
from kourou_spark_etl.source.readers import BatchReader, StreamReader

FORMAT = "kourou"
_KNOWN = "DATA_SOURCE_ALREADY_EXISTS"

_PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
"""Off by default in Spark, and sources that know filters are refused then."""


class KourouDataSource(DataSource):
    """Topics as tables."""

    @classmethod
    def name(cls) -> str:
        """The word behind `format`."""
        return FORMAT

    def schema(self) -> str:
        """The columns of a read; a wrong option is told here, before anything is asked."""
        read_options(self.options)
        return SCHEMA_DDL

    def reader(self, schema: StructType) -> DataSourceReader:
        """A batch."""
        return BatchReader(for_batch(read_options(self.options)), wanted_columns(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """A stream."""
        return StreamReader(for_stream(read_options(self.options)), wanted_columns(schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """A batch write."""
        return batch_writer(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """The writes of a stream."""
        return stream_writer(self.options, schema, overwrite)


def register(spark: SparkSession) -> None:
    """Let a session know `format("kourou")`; any number of times."""
    spark.conf.set(_PUSHDOWN, "true")
    try:
        spark.dataSource.register(KourouDataSource)
    except AnalysisException as error:
        # A session that was made of one that knows it, such as that of a batch in foreachBatch.
        if error.getCondition() != _KNOWN:
            raise
