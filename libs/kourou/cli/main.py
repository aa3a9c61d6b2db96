"""The entry point of `kourou`; converts every error to one sentence on stderr and an exit code.

Services start without the command line library, which would occupy memory as long as they run.
`kourou health` starts without it, because its import takes ten times longer than the request.

Exit codes: 0 success · 1 failure · 2 wrong usage or settings, nothing was changed · 75 the store is
faulted · 129, 130, 143 ended by SIGHUP, Ctrl-C, SIGTERM.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import FrameType
from typing import Any, NoReturn, Self

from kourou.cli.health import run_health
from kourou.cli.services import SERVICES, run_service
from kourou.errors import BadRequest, ConfigError, KourouError, MissingPackages, StoreFaulted
from kourou.service.process_setup import as_output_sentence, hold_standard_streams, output_trouble

ENDING_SIGNALS = (signal.SIGTERM, signal.SIGHUP)
EXIT_BY_SIGNAL = 128
"""Shells report this plus the signal's number for a process that was ended by a signal."""


class EndingSignals:
    """Lets SIGTERM and SIGHUP end a command like Ctrl-C, so that it cleans up.

    `with EndingSignals() as ending:`; `ending.number` is the signal that was received, if any.
    Ignored signals stay ignored (nohup). Only the first signal counts: a closed terminal sends
    several, which must not interrupt the cleanup that the first one started.
    """

    __slots__ = ("_before", "number")

    def __init__(self) -> None:
        self.number: signal.Signals | None = None
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():  # else handlers cannot be set
            for number in ENDING_SIGNALS:
                if signal.getsignal(number) is signal.SIG_DFL:
                    self._before[number] = signal.signal(number, self._end)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def exit_code(self, otherwise: int) -> int:
        """The exit code of the process."""
        return otherwise if self.number is None else EXIT_BY_SIGNAL + self.number

    def _end(self, number: int, frame: FrameType | None) -> None:
        if self.number is not None:
            return
        self.number = signal.Signals(number)
        # The current handler of Ctrl-C (asyncio, while a loop runs) ends running work in order.
        handler = signal.getsignal(signal.SIGINT)
        if callable(handler):
            handler(signal.SIGINT, frame)
            return
        raise KeyboardInterrupt  # background jobs of a script ignore Ctrl-C


EXIT_FAILED = 1
EXIT_BAD_USAGE = 2
EXIT_FAULTED = 75
EXIT_INTERRUPTED = 130

CALLED_AS = "KOUROU_COMMAND"
"""Set by the launcher to the command that the user typed."""

GROUPS = "KOUROU_GROUPS"
"""Extras of pyproject.toml that the launcher has just installed or shall install."""

VERSION_OPTIONS = frozenset({"--version", "-V"})


def run() -> NoReturn:
    """Run this process's command line and end with its exit code."""
    hold_standard_streams()
    launcher = os.environ.pop(CALLED_AS, "")  # not inherited by child processes
    groups = os.environ.pop(GROUPS, "").split()

    def fetch(group: str) -> None:
        """Replace this process by the launcher, which installs the group and runs the command."""
        if launcher and group not in groups:
            os.environ[GROUPS] = " ".join((*groups, group))
            os.execv(launcher, [launcher, *sys.argv[1:]])

    code = main(sys.argv[1:], _short_name(launcher), fetch)
    trouble = output_trouble()
    if trouble is not None and not code:
        _print_error(as_output_sentence(trouble), code)
        code = EXIT_FAILED
    sys.exit(code)


def main(
    arguments: Sequence[str],
    called_as: str = "kourou",
    fetch: Callable[[str], None] = lambda group: None,
) -> int:
    """Run one command line; every error becomes one sentence on stderr and an exit code.

    `called_as` is how the user starts Kourou; examples and hints use it. `fetch` is called with the
    group of packages that a command lacks; if it returns, the command fails.
    """

    def run_reported(work: Callable[[], int]) -> int:
        return _run_reported(work, called_as, fetch)

    arguments = _normalized(arguments)
    if arguments[0] in SERVICES:
        return run_reported(lambda: run_service(arguments[0], arguments[1:], called_as))
    if arguments[0] == "health":  # runs every few seconds, so nothing else is imported
        return run_reported(lambda: run_health(arguments[1:], called_as))
    with EndingSignals() as ending:
        code = run_reported(lambda: _run_command(arguments, called_as))
    return ending.exit_code(otherwise=code)


def _run_reported(work: Callable[[], int], called_as: str, fetch: Callable[[str], None]) -> int:
    """Run a command; every error becomes a sentence."""
    try:
        return work()
    except MissingPackages as lack:
        fetch(lack.group)
        return _print_error(str(lack), EXIT_BAD_USAGE)
    except (ConfigError, BadRequest) as wrong:
        return _print_error(_message_for_users(wrong, called_as), EXIT_BAD_USAGE)
    except StoreFaulted as fault:
        return _print_error(str(fault), EXIT_FAULTED)
    except KourouError as error:
        return _print_error(_message_for_users(error, called_as), EXIT_FAILED)
    except KeyboardInterrupt:
        return _print_error("interrupted", EXIT_INTERRUPTED)
    except OSError as trouble:
        return _print_os_error(trouble)


def _normalized(arguments: Sequence[str]) -> list[str]:
    """Convert other ways to request the help and the version."""
    if not arguments:
        return ["--help"]
    if arguments[0] == "help":
        return [*arguments[1:], "--help"]
    if arguments[0] in VERSION_OPTIONS:
        return ["version", *arguments[1:]]
    return list(arguments)


def _run_command(arguments: Sequence[str], called_as: str) -> int:
    from typer.exceptions import Abort, TyperException

    from kourou.cli.commands import COMPLETION_VARIABLE, app_for, prepare_completion

    _set_up_logs()
    prepare_completion()

    try:
        result = app_for(arguments[0])(
            args=list(arguments),
            prog_name=called_as,
            standalone_mode=False,
            complete_var=COMPLETION_VARIABLE,
        )
    except TyperException as wrong:
        context = getattr(wrong, "ctx", None)  # the context of the wrong command
        place = context.command_path if context else called_as
        sentence = _usage_sentence(wrong)
        return _print_error(f"{sentence}; see `{place} --help`", wrong.exit_code)
    except Abort:
        return _print_error("interrupted", EXIT_INTERRUPTED)
    if result == EXIT_INTERRUPTED:  # typer's way to report Ctrl-C
        return _print_error("interrupted", EXIT_INTERRUPTED)
    return result if isinstance(result, int) else 0


def _usage_sentence(wrong: Any) -> str:
    """What is wrong with a command line; for a wrong value, the value and what is allowed."""
    sentence: str = wrong.format_message().rstrip(".")
    checked = wrong.__cause__  # by pydantic, whose texts are about "input"
    if checked is None or not hasattr(checked, "errors"):
        return sentence
    found = checked.errors()[0]
    expected, _, _ = found["msg"].removeprefix("Input should be ").partition(", unable to parse")
    for theirs, ours in _EXPECTED.items():
        expected = expected.replace(theirs, ours)
    name = sentence.removeprefix("Invalid value for ").partition(": ")[0]
    return f"{name} is {found['input']!r:.80}; it must be {expected}"


_EXPECTED = {
    "a valid integer": "a whole number",
    "a valid number": "a number",
    "greater than or equal to": "at least",
    "less than or equal to": "at most",
}
"""Words of pydantic's texts, and ours."""


def _set_up_logs() -> None:
    """Commands print sentences; library logs appear only with KOUROU_LOG_LEVEL."""
    level = os.environ.get("KOUROU_LOG_LEVEL", "").upper()
    if level in logging.getLevelNamesMapping():
        logging.basicConfig(level=level, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    else:
        logging.getLogger("kourou").addHandler(logging.NullHandler())


def _message_for_users(wrong: KourouError, called_as: str) -> str:
    """An error message with hints for users; the library's own hints address programmers."""
    from kourou.client.session.discovery import ENVIRONMENT_NAME, NameServersDown, NoNameServer

    question = f"is `{called_as} up` running?"
    if isinstance(wrong, NameServersDown):
        return f"{wrong.message} ({wrong.hint}; {question})"
    if isinstance(wrong, NoNameServer):
        example = f"-n 127.0.0.1:9876, or export {ENVIRONMENT_NAME}=127.0.0.1:9876"
        return f"{wrong.message} ({example}; {question})"
    return str(wrong)


def _print_os_error(trouble: OSError) -> int:
    """Report an error of a file, a folder, or the output itself."""
    output = output_trouble()
    if output is not None:
        return _print_error(as_output_sentence(output), EXIT_FAILED)
    logging.getLogger("kourou.cli").debug("command-failed: where it came from", exc_info=trouble)
    why = trouble.strerror or str(trouble) or type(trouble).__name__
    if isinstance(trouble.filename, str):
        return _print_error(f"cannot use {trouble.filename}: {why}", EXIT_BAD_USAGE)
    if isinstance(trouble, TimeoutError):
        return _print_error("timed out waiting for a reply", EXIT_FAILED)
    return _print_error(f"system error: {why}", EXIT_FAILED)


def _print_error(sentence: str, code: int) -> int:
    if sentence:
        from kourou.cli.admin.report import printable_lines

        shown = printable_lines(f"kourou: {sentence[:1].lower()}{sentence[1:]}")
        with suppress(OSError):  # stderr is closed; the exit code still reports the error
            print(shown, file=sys.stderr, flush=True)
    return code


def _short_name(called_as: str) -> str:
    """The command as the user has to type it: the bare name if it is on PATH."""
    if not called_as:
        return "kourou"
    import shlex
    import shutil

    name = os.path.basename(called_as)  # noqa: PTH119 - "./kourou" must keep its "./"
    return name if shutil.which(name) == called_as else shlex.quote(called_as)
