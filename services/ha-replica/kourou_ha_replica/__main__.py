"""`python -m kourou_ha_replica`."""

from kourou.service.process_setup import run_module

run_module("kourou_ha_replica.app")
