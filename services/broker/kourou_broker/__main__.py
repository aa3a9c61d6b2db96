"""`python -m kourou_broker`."""

import sys
from importlib import import_module

from kourou.service.collector import relax

relax()
import_module("kourou_broker.app").main(sys.argv[1:])
