"""`python -m kourou_ha_replica`."""

import sys
from importlib import import_module

from kourou.service.collector import relax

relax()
import_module("kourou_ha_replica.app").main(sys.argv[1:])
