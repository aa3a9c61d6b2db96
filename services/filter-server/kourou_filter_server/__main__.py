"""`python -m kourou_filter_server`."""

import sys
from importlib import import_module

from kourou.service.collector import relax

relax()
import_module("kourou_filter_server.app").main(sys.argv[1:])
