"""`python -m kourou_console`."""

import sys
from importlib import import_module

from kourou.service.collector import relax

relax()
import_module("kourou_console.app").main(sys.argv[1:])
