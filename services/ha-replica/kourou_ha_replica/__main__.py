"""`python -m kourou_ha_replica`."""

import sys

from kourou_ha_replica.app import main

main(sys.argv[1:])
