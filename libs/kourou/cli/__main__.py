"""`python -m kourou.cli`: the entry point of the launcher."""

from kourou.cli.main import run

run()
