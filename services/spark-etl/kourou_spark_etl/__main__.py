"""`python -m kourou_spark_etl run|list|status|stop`."""

import sys
from importlib import import_module

from kourou.service.collector import relax

relax()
import_module("kourou_spark_etl.app").main(sys.argv[1:])
