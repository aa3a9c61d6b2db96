"""Optional package groups: checks whether they are installed.

The groups are the extras of pyproject.toml, read from the metadata of the installed project, which
is their only list. No package of a group is imported.
"""

from __future__ import annotations

import re
from importlib import metadata

from kourou.errors import MissingPackages

_REQUIREMENT = re.compile(r"([A-Za-z0-9._-]+).*;.*extra == ['\"]([a-z]+)['\"]")


def missing_packages(group: str) -> tuple[str, ...]:
    """Return the packages of a group that are not installed; empty if all are."""
    try:
        lines = metadata.requires("kourou") or ()
    except metadata.PackageNotFoundError:  # run from a source path: nothing is declared there
        return ()
    found = (_REQUIREMENT.match(line) for line in lines)
    names = (one[1] for one in found if one is not None and one[2] == group)
    return tuple(name for name in names if not _installed(name))


def require_group(group: str, purpose: str) -> None:
    """Raises MissingPackages if a group is not installed; `purpose` names what needs it."""
    if missing := missing_packages(group):
        raise MissingPackages(f"{purpose} needs packages: {', '.join(missing)}", group)


def _installed(name: str) -> bool:
    try:
        metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return False
    return True
