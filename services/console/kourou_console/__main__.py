"""`python -m kourou_console`."""

import sys

from kourou.service.process_setup import import_relaxed

import_relaxed("kourou_console.app").main(sys.argv[1:])
