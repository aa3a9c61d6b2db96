"""Fetches the three libraries that the web console is made with, and writes them beside its pages.

    python deploy/console/vendor.py           fetch and write
    python deploy/console/vendor.py --check   say whether what lies there is what was written

`npm pack` brings each package; npm compares what came with the registry's digest. Beside the files
go their licences, and `sums.json` names for each file the version, the file it was made from, and
the SHA-256 of both. A test compares the files with it.

State: none; what it writes is kept in the repository.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "services" / "console" / "kourou_console" / "static" / "vendor"
SUMS = "sums.json"


@dataclass(frozen=True, slots=True)
class Vendored:
    """One file: `source` in the package, `written` here, with each of `changes` made once."""

    package: str
    version: str
    source: str
    written: str
    changes: tuple[tuple[str, str], ...] = ()
    #: Put at the end.
    after: str = ""


FILES = (
    Vendored(
        "preact",
        "10.29.8",
        "dist/preact.module.js",
        "preact.js",
        (("\n//# sourceMappingURL=preact.module.js.map", ""),),
    ),
    # A bare name such as "preact" needs an import map, which the content security policy would
    # take for an inline script.
    Vendored(
        "preact",
        "10.29.8",
        "hooks/dist/hooks.module.js",
        "hooks.js",
        (
            ('from"preact"', 'from"./preact.js"'),
            ("\n//# sourceMappingURL=hooks.module.js.map", ""),
        ),
    ),
    Vendored("preact", "10.29.8", "LICENSE", "preact.LICENSE"),
    Vendored("htm", "3.1.1", "dist/htm.module.js", "htm.js"),
    Vendored("htm", "3.1.1", "LICENSE", "htm.LICENSE"),
    # Of uPlot only the script for pages is minified; it ends by filling the variable `uPlot`.
    Vendored(
        "uplot",
        "1.6.32",
        "dist/uPlot.iife.min.js",
        "uplot.js",
        after="\nexport default uPlot;\n",
    ),
    Vendored("uplot", "1.6.32", "dist/uPlot.min.css", "uplot.css"),
    Vendored("uplot", "1.6.32", "LICENSE", "uplot.LICENSE"),
)


def fetch(folder: Path) -> list[dict[str, str]]:
    """Writes all files to `folder`; what it wrote, as in `sums.json`.

    Raises CalledProcessError where npm fails, ValueError where a file is not as it was when these
    changes were written down.
    """
    folder.mkdir(parents=True, exist_ok=True)
    sums = []
    with tempfile.TemporaryDirectory() as scratch:
        archives = {
            (file.package, file.version): _pack(file.package, file.version, Path(scratch))
            for file in FILES
        }
        for file in FILES:
            raw = _member(archives[file.package, file.version], file.source)
            data = _changed(file, raw)
            (folder / file.written).write_bytes(data)
            sums.append(
                {
                    "file": file.written,
                    "package": f"{file.package}@{file.version}",
                    "source": file.source,
                    "source_sha256": hashlib.sha256(raw).hexdigest(),
                    "sha256": hashlib.sha256(data).hexdigest(),
                }
            )
    (folder / SUMS).write_text(json.dumps(sums, indent=2) + "\n")
    return sums


def differences(folder: Path) -> list[str]:
    """What lies in `folder` and is not what `sums.json` says, one sentence each."""
    sums = {entry["file"]: entry["sha256"] for entry in json.loads((folder / SUMS).read_text())}
    there = {path.name for path in folder.iterdir()} - {SUMS}
    found = [f"{name} is missing" for name in sorted(sums.keys() - there)]
    found += [f"{name} is in no list" for name in sorted(there - sums.keys())]
    for name in sorted(there & sums.keys()):
        if hashlib.sha256((folder / name).read_bytes()).hexdigest() != sums[name]:
            found.append(f"{name} has been changed by hand")
    return found


def _pack(package: str, version: str, scratch: Path) -> Path:
    done = subprocess.run(
        ["npm", "pack", "--silent", f"{package}@{version}"],
        cwd=scratch,
        check=True,
        capture_output=True,
        text=True,
    )
    return scratch / done.stdout.split()[-1]


def _member(archive: Path, name: str) -> bytes:
    with tarfile.open(archive) as packed:
        member = packed.extractfile(f"package/{name}")
        if member is None:
            raise ValueError(f"{archive.name} has no file {name}")
        return member.read()


def _changed(file: Vendored, raw: bytes) -> bytes:
    text = raw.decode("utf-8")
    for before, after in file.changes:
        if text.count(before) != 1:
            raise ValueError(f"{before!r} is not there once in {file.package}'s {file.source}")
        text = text.replace(before, after)
    return (text + file.after).encode("utf-8")


def main(arguments: list[str]) -> int:
    """The exit code: 1 if `--check` found a difference."""
    if arguments == ["--check"]:
        found = differences(FOLDER)
        sys.stderr.writelines(f"{line}\n" for line in found)
        return 1 if found else 0
    if arguments:
        sys.stderr.write(f"{__doc__}\n")
        return 2
    for entry in fetch(FOLDER):
        sys.stdout.write(f"{entry['file']} from {entry['package']}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
