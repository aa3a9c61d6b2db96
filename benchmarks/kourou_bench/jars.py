"""Fetches the jars of a peer once into a cache, from a list of names and checksums.

A list has one line per jar, `sha256 group:artifact:version`; `#` starts a comment. Nothing that is
not listed is fetched, so the same files run on every machine.

State: soft; cached files are verified at each use and fetched again if they are wrong.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape

from kourou.errors import ConfigError, Corrupt, Unavailable

MAVEN_URL_VARIABLE = "KOUROU_MAVEN_URL"
"""The URL that Maven fetches from; unset: Maven's own settings, Maven Central by default."""

COPY_GOAL = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"
LOG_LINES_SHOWN = 1

_LINE = re.compile(r"([0-9a-f]{64})\s+([\w.-]+):([\w.-]+):([\w.-]+)")


@dataclass(frozen=True, slots=True)
class Jar:
    """A file of Maven Central, by its coordinates."""

    sha256: str
    group: str
    artifact: str
    version: str

    @property
    def file_name(self) -> str:
        """The file name."""
        return f"{self.artifact}-{self.version}.jar"


def read_list(text: str) -> list[Jar]:
    """Parse a list; raises ConfigError, naming the line, for invalid lines."""
    jars: list[Jar] = []
    for number, line in enumerate(text.splitlines(), 1):
        wanted = line.partition("#")[0].strip()
        if not wanted:
            continue
        found = _LINE.fullmatch(wanted)
        if found is None:
            raise ConfigError(f"line {number} is not `sha256 group:artifact:version`: {wanted!r}")
        jars.append(Jar(*found.groups()))
    names = [jar.file_name for jar in jars]
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise ConfigError(f"listed twice: {', '.join(sorted(twice))}")
    return jars


def check(jars: Iterable[Jar], folder: Path) -> None:
    """Raises Corrupt, naming the file, unless all jars exist with the listed checksums."""
    for jar in jars:
        path = folder / jar.file_name
        if not path.is_file():
            raise Corrupt(f"{jar.file_name} is missing")
        with path.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
        if found != jar.sha256:
            raise Corrupt(f"{jar.file_name} has the checksum {found}, not {jar.sha256}")


def have(jars: list[Jar], folder: Path) -> bool:
    """True if all jars have been fetched and match the list."""
    try:
        check(jars, _place(jars, folder))
    except Corrupt:
        return False
    return True


def fetched(jars: list[Jar], folder: Path) -> Path:
    """A folder below `folder` with exactly these jars, fetched if necessary.

    Only one process at a time fetches into `folder`; others wait and reuse the result. Raises
    Corrupt if a fetched file does not match the list, Unavailable if Maven fails.
    """
    place = _place(jars, folder)
    if have(jars, folder):
        return place
    folder.mkdir(parents=True, exist_ok=True)
    with _alone(folder):
        if not have(jars, folder):
            _fetch(jars, folder, place)
    return place


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Lock the folder. The kernel releases the lock when the process ends, for whatever reason."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _fetch(jars: list[Jar], folder: Path, place: Path) -> None:
    if place.exists():
        shutil.rmtree(place)  # incomplete or modified: fetch again
    with tempfile.TemporaryDirectory(dir=folder, prefix="fetching-") as scratch:
        files = Path(scratch, "jars")
        _have_maven_copy(jars, Path(scratch), files, folder / "maven")
        check(jars, files)
        files.rename(place)


def pom(jars: Iterable[Jar], repository: str = "") -> str:
    """A Maven project that depends on these jars, without their transitive dependencies.

    `repository` is the URL to fetch from, instead of the default.
    """
    wanted = "".join(
        f"<dependency><groupId>{jar.group}</groupId><artifactId>{jar.artifact}</artifactId>"
        f"<version>{jar.version}</version><exclusions><exclusion><groupId>*</groupId>"
        "<artifactId>*</artifactId></exclusion></exclusions></dependency>\n"
        for jar in jars
    )
    place = f"<id>central</id><url>{escape(repository)}</url>"
    from_there = (
        f"<repositories><repository>{place}</repository></repositories>\n<pluginRepositories>"
        f"<pluginRepository>{place}</pluginRepository></pluginRepositories>\n"
    )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>\n'
        "<groupId>kourou</groupId><artifactId>peers</artifactId><version>1</version>\n"
        f"{from_there if repository else ''}<dependencies>\n{wanted}</dependencies></project>\n"
    )


def _have_maven_copy(jars: list[Jar], scratch: Path, files: Path, repository: Path) -> None:
    project = scratch / "pom.xml"
    project.write_text(pom(jars, os.environ.get(MAVEN_URL_VARIABLE, "")), encoding="utf-8")
    done = subprocess.run(
        [
            *("mvn", "--batch-mode", "--quiet", "--strict-checksums", "--file", str(project)),
            *(COPY_GOAL, f"-DoutputDirectory={files}", f"-Dmaven.repo.local={repository}"),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        last = "\n".join((done.stdout + done.stderr).strip().splitlines()[:LOG_LINES_SHOWN])
        raise Unavailable(
            f"Maven could not fetch the jars: {last}",
            hint=f"a mirror: {MAVEN_URL_VARIABLE}=https://… or Maven's own settings.xml",
        )


def _place(jars: Iterable[Jar], folder: Path) -> Path:
    listed = "\n".join(sorted(f"{jar.sha256} {jar.file_name}" for jar in jars))
    return folder / f"jars-{hashlib.sha256(listed.encode()).hexdigest()[:12]}"
