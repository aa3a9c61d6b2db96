"""`python -m kourou_namesrv`."""

import sys

from kourou_namesrv.app import main

main(sys.argv[1:])
