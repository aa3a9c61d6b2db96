"""`python -m kourou_filter_server`."""

import sys

from kourou_filter_server.app import main

main(sys.argv[1:])
