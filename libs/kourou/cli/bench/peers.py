"""`kourou bench --peers`: the same work for Kourou and its peers, in the same run, as one table.

Lives here: which systems there are, what is printed around the table, the exit code.
May not live here: measuring and arithmetic.

A peer that this machine lacks is said, loudly, and is no failure; a measurement that failed is one.
"""

from __future__ import annotations

import os
import platform
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kourou.cli.bench.comparison import Comparison, Result
from kourou.cli.bench.driving import Outcome
from kourou.cli.bench.measure import Scale, measure
from kourou.cli.bench.rocketmq import JavaAtKourou, RocketMq
from kourou.cli.bench.rows import JAVA, Name, Work, select
from kourou.cli.bench.systems import Kourou, Nats, Redis, System
from kourou.cli.bench.table import json_lines, notes, text_table
from kourou.cli.checkout import find_checkout
from kourou.cli.doctor import file_system_of
from kourou.errors import ConfigError
from kourou.service.packages import require_group

CACHE_FOLDER = ".peers"
"""In the checkout, ignored by git: jars, Maven's repository, compiled drivers."""

MEMORY_FILE_SYSTEMS = frozenset({"tmpfs", "ramfs"})


@dataclass(frozen=True, slots=True)
class PeerOptions:
    """What the command line asks for. `peers` may name fewer systems than there are."""

    only: Sequence[str] = ()
    peers: Sequence[str] = ()
    rounds: int = 3
    scale: Scale = field(default_factory=Scale)
    huge: bool = False
    as_json: bool = False


def names(text: str) -> list[str]:
    """The names in `a,b,c`."""
    return [name.strip() for name in text.split(",") if name.strip()]


def run_peers(options: PeerOptions) -> int:
    """Measure, print, and return 0 unless a measurement failed."""
    rows = select(options.only, huge=options.huge)
    systems = _systems(options.peers)
    if {Name.NATS, Name.REDIS} & systems.keys():
        require_group("bench", "driving NATS and Redis")
    missing = {name: system.missing() for name, system in systems.items()}
    for name, lack in missing.items():
        if lack:
            _tell(f"NOT MEASURED: {name}: {lack}")
    settings = _settings(options, [one for name, one in systems.items() if not missing[name]])
    if not options.as_json:
        _introduce(settings)

    def absent(name: Name, work: Work) -> str:
        if name is Name.ITSELF:
            return ""
        if name not in systems:
            return f"{name} was not asked for"
        if work.client == JAVA and Name.ROCKETMQ not in systems:
            return f"{Name.ROCKETMQ}, whose client does it, was not asked for"
        return missing[Name.ROCKETMQ if work.client == JAVA else name] or systems[name].cannot(work)

    def once(name: Name, work: Work) -> Outcome:
        return measure(_java() if work.client == JAVA else systems[name], work, options.scale)

    results = Comparison(once, absent, _tell).run(rows, options.rounds)
    titles = {name: name.value for name in Name}
    titles |= {name: one.title() for name, one in systems.items() if not missing[name]}
    if options.as_json:
        print("\n".join(json_lines(results, settings)), flush=True)
    else:
        print(f"\n{text_table(results, titles)}\n")
    for note in notes(results, titles):
        print(note, file=sys.stderr if options.as_json else sys.stdout, flush=True)
    return int(_failed(results))


def _java() -> System:
    checkout = find_checkout()
    return JavaAtKourou(checkout / "benchmarks" / "java", checkout / CACHE_FOLDER)


def _systems(wanted: Sequence[str]) -> dict[Name, System]:
    try:
        checkout = find_checkout()
    except ConfigError as wrong:
        raise ConfigError(
            "the peers' drivers are in the source checkout; this Kourou is an installed package",
            hint="clone the repository and run ./kourou bench --peers there",
        ) from wrong
    sources = checkout / "benchmarks"
    systems: list[System] = [
        Kourou(),
        RocketMq(sources / "java", checkout / CACHE_FOLDER),
        Nats(sources / "peers"),
        Redis(sources / "peers"),
    ]
    known = {system.name.value for system in systems}
    wrong_names = set(wanted) - known
    if wrong_names:
        raise ConfigError(
            f"{', '.join(sorted(wrong_names))}: systems are {', '.join(sorted(known))}"
        )
    taken = set(wanted) | {Name.KOUROU.value} if wanted else known
    return {system.name: system for system in systems if system.name.value in taken}


def _settings(options: PeerOptions, systems: Sequence[System]) -> dict[str, object]:
    folder = Path(tempfile.gettempdir()).resolve()
    mounts = Path("/proc/mounts")
    text = mounts.read_text(encoding="utf-8") if mounts.exists() else ""
    return {
        "rounds": options.rounds,
        **options.scale.told(),
        "cpus": os.cpu_count(),
        "machine": f"{platform.system()} {platform.release()} {platform.machine()}",
        "file_system": file_system_of(folder, text) or "unknown",
        "systems": {system.title(): dict(system.settings()) for system in systems},
    }


def _introduce(settings: dict[str, object]) -> None:
    systems = settings.pop("systems")
    assert isinstance(systems, dict)
    print("; ".join(f"{name} {value}" for name, value in settings.items()))
    if settings["file_system"] in MEMORY_FILE_SYSTEMS:
        print("THE TEMPORARY FOLDER IS MEMORY: nothing here says a word about disks; set TMPDIR")
    for title, keys in systems.items():
        print(f"{title}: " + "; ".join(f"{name} {value}" for name, value in keys.items()))
    settings["systems"] = systems
    sys.stdout.flush()


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _failed(results: Sequence[Result]) -> bool:
    return any(cell.failures for result in results for cell in result.cells.values())
