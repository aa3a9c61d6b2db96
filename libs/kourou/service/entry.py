"""Runs a service from its command line."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from kourou.errors import ConfigError, KourouError
from kourou.service.command_line import parse_arguments
from kourou.service.lifecycle import ExitCode, Service, print_error, run_service
from kourou.service.os_processes import keep_process_to
from kourou.service.process_keys import ProcessKeys
from kourou.service.process_setup import (
    as_output_sentence,
    disable_core_dumps,
    freeze_gc,
    hold_standard_streams,
    output_trouble,
)
from kourou.settings.declaration import settings_of
from kourou.settings.sources import load_settings, render
from kourou.telemetry.logs import configure_logs

_log = logging.getLogger("kourou.service")

SettingsT = TypeVar("SettingsT", bound=ProcessKeys)


def run_from_arguments(
    name: str,
    about: str,
    argv: Sequence[str],
    settings_class: type[SettingsT],
    make: Callable[[SettingsT], Service],
    called_as: str = "kourou",
) -> int:
    """Read arguments and settings, print them if requested, else run the service.

    Returns the exit code. `called_as` is the command that starts Kourou, as shown by the help.
    """
    hold_standard_streams()
    disable_core_dumps()
    try:
        keys = {*settings_class.inert_keys, *(one.key for one in settings_of(settings_class))}
        arguments = parse_arguments(f"{called_as} {name}", about, argv, keys=keys)
        loaded = load_settings(
            settings_class,
            arguments=arguments.settings,
            environment=os.environ,
            file=arguments.file,
        )
        if arguments.ready_file is not None:
            _check_ready_file(arguments.ready_file)
    except KourouError as error:
        print_error(f"kourou {name}", error)
        return ExitCode.USAGE
    settings = loaded.settings
    if arguments.print_settings:
        return _print(name, render(settings, explained=arguments.print_explained))
    keep_process_to(settings.process_cores)
    configure_logs(service=name, level=settings.log_level, log_format=settings.log_format)
    for warning in loaded.warnings:
        _log.warning("setting-doubted: %(warning)s", {"warning": warning})
    return run_service(lambda: make(settings), ready_file=arguments.ready_file, ready=freeze_gc)


def _check_ready_file(path: Path) -> None:
    """Raises ConfigError if the ready file could not be written later."""
    trial = path.with_name(path.name + ".tmp")
    try:
        trial.touch()
        trial.unlink()
    except OSError as error:
        raise ConfigError(f"--ready-file {path} cannot be written: {error.strerror}") from error


def _print(name: str, text: str) -> int:
    """Print the text; a reader that closes the pipe early is not an error."""
    with suppress(OSError):  # output_trouble reports it
        sys.stdout.write(text)
    trouble = output_trouble()
    if trouble is None:
        return ExitCode.OK
    if sentence := as_output_sentence(trouble):
        print_error(f"kourou {name}", sentence)
    return ExitCode.FAULTED
