"""Writing: `df.write.format("kourou")` and `df.writeStream.format("kourou")`."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter
from pyspark.sql.types import StructType

from kourou.errors import BadRequest
from kourou_spark_etl.sink.columns import check_columns
from kourou_spark_etl.sink.options import write_options
from kourou_spark_etl.sink.writers import BatchWriter, StreamWriter

__all__ = ["batch_writer", "stream_writer"]


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
