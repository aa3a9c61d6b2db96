"""`python -m kourou_broker`."""

import sys

from kourou_broker.app import main

main(sys.argv[1:])
