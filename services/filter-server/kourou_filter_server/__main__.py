"""`python -m kourou_filter_server`."""

from kourou.service.process_setup import run_module

run_module("kourou_filter_server.app")
