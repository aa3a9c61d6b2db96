"""`python -m kourou_console`."""

from kourou.service.process_setup import run_module

run_module("kourou_console.app")
