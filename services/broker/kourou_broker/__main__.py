"""`python -m kourou_broker`."""

import sys

from kourou.service.process_setup import import_relaxed

import_relaxed("kourou_broker.app").main(sys.argv[1:])
