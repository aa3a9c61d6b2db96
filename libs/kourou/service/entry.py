"""From a command line to a running service.

Lives here: what `run(argv)` of every service does before its life begins.
May not live here: the life (kourou.service.lifecycle), a service's settings.

State: none.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Collection, Sequence
from typing import TypeVar

from kourou.errors import KourouError
from kourou.service.command_line import parse_arguments
from kourou.service.lifecycle import ExitCode, Service, complain, run_service
from kourou.service.process_keys import ProcessKeys
from kourou.service.settings import load_settings, render
from kourou.telemetry.logs import configure_logs

_log = logging.getLogger("kourou.service")

SettingsT = TypeVar("SettingsT", bound=ProcessKeys)


def run_from_arguments(
    name: str,
    about: str,
    argv: Sequence[str],
    settings_class: type[SettingsT],
    inert: Collection[str],
    make: Callable[[SettingsT], Service],
) -> int:
    """Read arguments and settings, print them if asked, else run the service; the exit code."""
    try:
        arguments = parse_arguments(f"kourou {name}", about, argv)
        loaded = load_settings(
            settings_class,
            arguments=arguments.settings,
            environment=os.environ,
            file=arguments.file,
            inert=inert,
        )
    except KourouError as error:
        complain(f"kourou {name}", error)
        return ExitCode.USAGE
    settings = loaded.settings
    if arguments.print_settings:
        sys.stdout.write(render(settings, explained=arguments.print_explained))
        return ExitCode.OK
    configure_logs(service=name, level=settings.log_level, log_format=settings.log_format)
    for warning in loaded.warnings:
        _log.warning("%s", warning)
    return run_service(lambda: make(settings), ready_file=arguments.ready_file)
