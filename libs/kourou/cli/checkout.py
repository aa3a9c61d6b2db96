"""Where the project's own files are, when Kourou runs from a source checkout.

Lives here: finding the checkout. May not live here: what is done with it.
"""

from __future__ import annotations

from pathlib import Path

from kourou.errors import ConfigError


def find_checkout() -> Path:
    """The folder with pyproject.toml and tests/ that this package was loaded from.

    Raises ConfigError where Kourou is installed as a package only.
    """
    folder = Path(__file__).resolve().parents[3]
    if (folder / "pyproject.toml").is_file() and (folder / "tests").is_dir():
        return folder
    raise ConfigError(
        "the checks need a source checkout; this is an installed package",
        hint="clone the repository and run ./kourou test there",
    )
