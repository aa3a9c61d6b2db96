"""`python -m kourou_namesrv`."""

import sys

from kourou.service.process_setup import import_relaxed

import_relaxed("kourou_namesrv.app").main(sys.argv[1:])
