"""Locates the project's files when Kourou runs from a source checkout."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from types import ModuleType

from kourou.errors import ConfigError


def find_checkout() -> Path:
    """The folder with pyproject.toml and tests/ from which this package was loaded.

    Raises ConfigError if Kourou is installed as a package.
    """
    folder = Path(__file__).resolve().parents[3]
    if (folder / "pyproject.toml").is_file() and (folder / "tests").is_dir():
        return folder
    raise ConfigError(
        "the checks need a source checkout; this is an installed package",
        hint="clone the repository and run ./kourou test there",
    )


def load(module: str, command: str) -> ModuleType:
    """Import a module of `benchmarks` or `examples`, which Kourou's packages do not contain.

    Raises ConfigError if Kourou is installed as a package.
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module.partition(".")[0]:
            raise
        raise ConfigError(
            f"{command} needs a source checkout; this is an installed package",
            hint=f"clone the repository and run ./{command} there",
        ) from error
