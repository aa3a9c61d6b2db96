"""`python -m kourou_namesrv`."""

from kourou.service.process_setup import run_module

run_module("kourou_namesrv.app")
