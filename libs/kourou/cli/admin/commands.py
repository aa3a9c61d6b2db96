"""`kourou admin`: all commands, by family.

Lives here: the list of families, whose import makes their commands. May not live here: any command.
"""

from __future__ import annotations

from kourou.cli.admin import (
    broker_commands,
    group_commands,
    message_commands,
    topic_commands,
    watching_commands,
)
from kourou.cli.admin.options import admin

FAMILIES = (topic_commands, group_commands, message_commands, broker_commands, watching_commands)
"""In the order of the help."""

__all__ = ["FAMILIES", "admin"]
