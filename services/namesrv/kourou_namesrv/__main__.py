"""`python -m kourou_namesrv`."""

import sys
from importlib import import_module

from kourou.service.collector import relax

relax()
import_module("kourou_namesrv.app").main(sys.argv[1:])
