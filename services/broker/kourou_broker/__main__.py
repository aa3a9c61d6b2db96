"""`python -m kourou_broker`."""

import sys

from kourou.service.collector import import_relaxed

import_relaxed("kourou_broker.app").main(sys.argv[1:])
