"""`python -m kourou_filter_server`."""

import sys

from kourou.service.process_setup import import_relaxed

import_relaxed("kourou_filter_server.app").main(sys.argv[1:])
