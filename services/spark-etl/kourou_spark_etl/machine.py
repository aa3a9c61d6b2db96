"""What this machine must have for Spark, and what to type where it has not."""

from __future__ import annotations

import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from kourou.errors import ConfigError, MissingPackages
from kourou.service.packages import missing_packages, require_group

GROUP = "spark"
"""The extra of pyproject.toml."""

JAVA_MIN = 17
"""Spark 4 is compiled for it."""

JAVA_LINE = "sudo apt install -y openjdk-17-jre-headless"
_VERSION = re.compile(r'^JAVA_VERSION="(?:1\.)?([0-9]+)', re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Lack:
    """What is missing, in a few words, and the line to type."""

    what: str
    remedy: str


def lacking() -> tuple[Lack, ...]:
    """Everything that keeps Spark from starting on this machine; empty if nothing does."""
    return (*lacking_packages(), *lacking_java())


def lacking_packages() -> tuple[Lack, ...]:
    """Which of the extra's packages are not installed; nothing is imported."""
    missing = missing_packages(GROUP)
    remedy = MissingPackages("", GROUP).hint
    return (Lack(f"no {', '.join(missing)}", remedy),) if missing else ()


def lacking_java() -> tuple[Lack, ...]:
    """Java, or a newer one. Spark takes the one of JAVA_HOME, else that of the path."""
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
    """17 for 17.0.15, by the file `release` of that installation; None where none tells it."""
    release = java.resolve().parent.parent / "release"
    if not release.is_file():
        return None
    found = _VERSION.search(release.read_text(encoding="utf-8", errors="replace"))
    return None if found is None else int(found[1])


def check_machine() -> None:
    """ConfigError, with the line to type, where Spark cannot start.

    Java first: without it the packages would be fetched for nothing.
    """
    for lack in lacking_java():
        raise ConfigError(
            f"Spark requires Java {JAVA_MIN} or later, but this machine has {lack.what}",
            hint=lack.remedy,
        )
    require_group(GROUP, "Spark")
