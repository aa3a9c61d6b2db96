"""`kourou`: the way in, and the one place where an error becomes a sentence and an exit code.

Lives here: what happens around a command. May not live here: the commands (kourou.cli.commands).

A service is started without the command line's machinery, which costs memory that it would keep for
as long as it runs; `kourou health` without it, because it takes ten times longer than asking.

Exit codes: 0 done · 1 it did not work · 2 wrong usage or settings, nothing touched · 75 the store
is faulted · 130 interrupted.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from kourou.cli.health import run_health
from kourou.cli.services import SERVICES, run_service
from kourou.errors import BadRequest, ConfigError, KourouError, StoreFaulted

EXIT_FAILED = 1
EXIT_BAD_USAGE = 2
EXIT_FAULTED = 75
EXIT_INTERRUPTED = 130


def run() -> NoReturn:
    """Run this process's command line and end with its exit code."""
    sys.exit(main(sys.argv[1:]))


def main(arguments: Sequence[str]) -> int:
    """Run one command line; whatever goes wrong becomes one sentence on stderr and an exit code."""
    try:
        if arguments and arguments[0] in SERVICES:
            return run_service(arguments[0], arguments[1:])
        if arguments and arguments[0] == "health":  # runs every few seconds: nothing else is loaded
            return run_health(arguments[1:])
        return _run_command(arguments)
    except (ConfigError, BadRequest) as wrong:
        return _complain(str(wrong), EXIT_BAD_USAGE)
    except StoreFaulted as fault:
        return _complain(str(fault), EXIT_FAULTED)
    except KourouError as error:
        return _complain(str(error), EXIT_FAILED)
    except KeyboardInterrupt:
        return _complain("interrupted", EXIT_INTERRUPTED)


def _run_command(arguments: Sequence[str]) -> int:
    from typer.exceptions import Abort, TyperException

    from kourou.cli.commands import app, command_names

    _set_up_logs()

    try:
        result = app(args=list(arguments) or ["--help"], prog_name="kourou", standalone_mode=False)
    except TyperException as wrong:
        known = [name for name in arguments[:1] if name in command_names()]
        hint = " ".join(["kourou", *known, "--help"])
        sentence = wrong.format_message().rstrip(".")
        return _complain(f"{sentence}; see `{hint}`", wrong.exit_code)
    except Abort:
        return _complain("interrupted", EXIT_INTERRUPTED)
    return result if isinstance(result, int) else 0


def _set_up_logs() -> None:
    """A command answers in sentences; the libraries' logs are for those who ask for them."""
    level = os.environ.get("KOUROU_LOG_LEVEL", "").upper()
    if level in logging.getLevelNamesMapping():
        logging.basicConfig(level=level, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    else:
        logging.getLogger("kourou").addHandler(logging.NullHandler())


def _complain(sentence: str, code: int) -> int:
    print(f"kourou: {sentence[:1].lower()}{sentence[1:]}", file=sys.stderr)
    return code
