"""What Spark meets first: the format, its options, its readers."""

from __future__ import annotations

import pytest
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.types import LongType, StructType

from kourou.errors import BadRequest
from kourou_spark_etl.data_source import KourouDataSource
from kourou_spark_etl.source.arrow_rows import SCHEMA_DDL
from kourou_spark_etl.source.readers import BatchReader, StreamReader

SCHEMA = StructType().add("offset", LongType())


def source(**options: str) -> KourouDataSource:
    return KourouDataSource(
        CaseInsensitiveDict({"nameServer": "127.0.0.1:9876", "subscribe": "orders", **options})
    )


def test_a_read_is_checked_before_anybody_is_asked() -> None:
    assert source().schema() == SCHEMA_DDL
    assert isinstance(source().reader(SCHEMA), BatchReader)
    assert isinstance(source(maxOffsetsPerTrigger="5").streamReader(SCHEMA), StreamReader)
    with pytest.raises(BadRequest, match="'bogus' is unknown"):
        source(bogus="1").schema()
    with pytest.raises(BadRequest, match="'maxOffsetsPerTrigger'"):
        source(maxOffsetsPerTrigger="5").reader(SCHEMA)
    with pytest.raises(BadRequest, match="'endingOffsets'"):
        source(endingOffsets="latest").streamReader(SCHEMA)
