"""`python -m kourou.cli`: the launcher comes in here."""

from kourou.cli.main import run

run()
