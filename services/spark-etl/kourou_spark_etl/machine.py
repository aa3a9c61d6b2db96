"""Checks what Spark needs on this machine, and how to install it."""

from __future__ import annotations

import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from kourou.errors import ConfigError, MissingPackages
from kourou.service.process_setup import missing_packages, require_group

GROUP = "spark"
"""The extra of pyproject.toml."""

JAVA_MIN = 17
"""Spark 4 is compiled for it."""

JAVA_LINE = "sudo apt install -y openjdk-17-jre-headless"
_VERSION = re.compile(r'^JAVA_VERSION="(?:1\.)?([0-9]+)', re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Lack:
    """A missing requirement, and the command that installs it."""

    what: str
    remedy: str


def lacking() -> tuple[Lack, ...]:
    """All missing requirements of Spark on this machine; empty if there are none."""
    return (*lacking_packages(), *lacking_java())


def lacking_packages() -> tuple[Lack, ...]:
    """The packages of the extra that are not installed; nothing is imported."""
    missing = missing_packages(GROUP)
    remedy = MissingPackages("", GROUP).hint
    return (Lack(f"no {', '.join(missing)}", remedy),) if missing else ()


def lacking_java() -> tuple[Lack, ...]:
    """Java, if it is missing or too old. Spark uses JAVA_HOME, otherwise the one in the path."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=f"{home}/bin" if home else None)
    if java is None:
        where = f" in JAVA_HOME ({home})" if home else ""
        return (Lack(f"no Java{where}", JAVA_LINE),)
    version = java_version(Path(java))
    if version is not None and version < JAVA_MIN:
        return (Lack(f"Java {version}, which is too old", JAVA_LINE),)
    return ()


def java_version(java: Path) -> int | None:
    """17 for 17.0.15, from the installation's file `release`; None if it is missing."""
    release = java.resolve().parent.parent / "release"
    if not release.is_file():
        return None
    found = _VERSION.search(release.read_text(encoding="utf-8", errors="replace"))
    return None if found is None else int(found[1])


def check_machine() -> None:
    """Raises ConfigError, with the command to type, if Spark cannot start.

    Java is checked first: without it, installing the packages would be useless.
    """
    for lack in lacking_java():
        raise ConfigError(
            f"Spark requires Java {JAVA_MIN} or later, but this machine has {lack.what}",
            hint=lack.remedy,
        )
    require_group(GROUP, "Spark")
