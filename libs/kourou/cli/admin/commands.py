"""`kourou admin`: all commands, by family."""

from __future__ import annotations

from kourou.cli.admin import (
    broker_commands,
    filter_commands,
    group_commands,
    message_commands,
    replica_commands,
    topic_commands,
    watching_commands,
    why_commands,
)
from kourou.cli.admin.options import admin, filters

FAMILIES = (
    *(topic_commands, group_commands, message_commands, broker_commands),
    *(replica_commands, filter_commands, watching_commands, why_commands),
)
"""In the order of the page and, except for filters, of the help."""

admin.add_typer(filters, name="filter", short_help="Manage Python filters (filter --help).")

__all__ = ["FAMILIES", "admin"]
