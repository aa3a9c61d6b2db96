"""The command line arguments that all services share.

The short options are those of RocketMQ's `mqnamesrv` and `mqbroker`.
"""

from __future__ import annotations

import argparse
from collections.abc import Container, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from kourou.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Arguments:
    """Parsed arguments; `settings` maps the keys given on the command line to their texts."""

    file: Path | None
    settings: dict[str, str]
    print_settings: bool
    print_explained: bool
    ready_file: Path | None


class CommandLineParser(argparse.ArgumentParser):
    """An argument parser that raises ConfigError instead of printing its usage."""

    def error(self, message: str) -> NoReturn:
        """Raise ConfigError."""
        raise ConfigError(message, hint=f"see {self.prog} --help")


def parse_arguments(
    program: str, about: str, argv: Sequence[str], *, keys: Container[str] | None = None
) -> Arguments:
    """Parse a service's arguments. Raises ConfigError if invalid. `--help` prints and exits.

    `keys` are the service's settings; None means all. An option whose setting is not among them is
    not offered.
    """
    parser = CommandLineParser(prog=program, description=about, allow_abbrev=False)
    parser.add_argument("-c", metavar="FILE", type=Path, help="settings in properties format")
    if keys is None or "namesrvAddr" in keys:
        parser.add_argument("-n", metavar="ADDR", help="name servers: host:port;host:port")
    parser.add_argument(
        "-m", action="store_true", help="print every setting with its description, and exit"
    )
    parser.add_argument("-p", action="store_true", help="print every setting, and exit")
    parser.add_argument(
        "--set",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="set one key (repeatable; overrides the file)",
    )
    parser.add_argument(
        "--ready-file",
        metavar="FILE",
        type=Path,
        help=("write the service's addresses to FILE as JSON when it is ready"),
    )
    parser.add_argument(
        "--insecure-network",
        action="store_true",
        help="allow network addresses without encryption and authentication",
    )
    if keys is None or "unsafeNoSandbox" in keys:
        parser.add_argument(
            "--unsafe-no-sandbox",
            action="store_true",
            help="run filters without the sandbox (loopback only)",
        )
    parser.set_defaults(n=None, unsafe_no_sandbox=False)
    found = parser.parse_args(list(argv))
    settings: dict[str, str] = {}
    for entry in found.set:
        key, equals, text = entry.partition("=")
        if not equals:
            raise ConfigError(f"--set {entry!r} has no '='", hint="write --set key=value")
        settings[key.strip()] = text
    if found.n is not None:
        settings["namesrvAddr"] = found.n
    if found.insecure_network:
        settings["insecureNetwork"] = "true"
    if found.unsafe_no_sandbox:
        settings["unsafeNoSandbox"] = "true"
    return Arguments(found.c, settings, found.m or found.p, found.m, found.ready_file)
