"""`python -m kourou_console`."""

import sys

from kourou_console.app import main

main(sys.argv[1:])
