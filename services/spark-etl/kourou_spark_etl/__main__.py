"""`python -m kourou_spark_etl run|list|status|stop`."""

import sys

from kourou_spark_etl.app import main

main(sys.argv[1:])
