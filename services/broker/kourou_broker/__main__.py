"""`python -m kourou_broker`."""

from kourou.service.process_setup import run_module

run_module("kourou_broker.app")
