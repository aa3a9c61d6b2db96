"""`python -m kourou_spark_etl run|list|status|stop`."""

import sys

from kourou.service.process_setup import import_relaxed

import_relaxed("kourou_spark_etl.commands").main(sys.argv[1:])
