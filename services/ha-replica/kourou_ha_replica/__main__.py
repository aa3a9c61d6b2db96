"""`python -m kourou_ha_replica`."""

import sys

from kourou.service.process_setup import import_relaxed

import_relaxed("kourou_ha_replica.app").main(sys.argv[1:])
