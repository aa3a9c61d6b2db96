"""`python -m kourou_spark_etl run|list|status|stop`."""

from kourou.service.process_setup import run_module

run_module("kourou_spark_etl.commands")
