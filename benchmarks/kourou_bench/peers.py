"""`kourou bench --peers`: the same workloads for Kourou and its peers in one run, as one table.

A peer that is missing on this machine is reported, but is not a failure; a failed measurement is.
"""

from __future__ import annotations

import datetime
import os
import platform
import re
import sys
import tempfile
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

from kourou.cli.checkout import find_checkout
from kourou.cli.doctor import file_system_of, python_name
from kourou.errors import ConfigError
from kourou.protocol import kernel
from kourou.service.process_setup import require_group
from kourou_bench.comparison import Comparison, Result
from kourou_bench.flames import Flames
from kourou_bench.kafka import Kafka
from kourou_bench.measure import Measured, Scale, prepared
from kourou_bench.rocketmq import JavaAtKourou, RocketMq
from kourou_bench.rows import JAVA, JAVA5, Name, Work, select
from kourou_bench.systems import Kourou, Nats, Redis, System
from kourou_bench.table import json_lines, notes, text_table
from kourou_bench.written import rows_lost, write_results

CACHE_FOLDER = ".peers"
"""Relative to the checkout, ignored by git: jars, Maven's repository, compiled drivers."""

OPTIONS = ("seconds", "warm_seconds", "warm_limit", "backlog", "size", "huge_share")
"""The fields of `Scale` that are command line options."""

CLIENTS = {JAVA: Name.ROCKETMQ, JAVA5: Name.ROCKETMQ5}
"""Workload's client -> the system whose client it is; these run against Kourou's servers."""

MEMORY_FILE_SYSTEMS = frozenset({"tmpfs", "ramfs"})


@dataclass(frozen=True, slots=True)
class PeerOptions:
    """The options of the command line. `peers` may name a subset of the systems."""

    only: Sequence[str] = ()
    peers: Sequence[str] = ()
    rounds: int = 3
    scale: Scale = field(default_factory=Scale)
    huge: bool = False
    rows_lost: bool = False
    flame_graphs: Path | None = None
    write: bool = False
    as_json: bool = False

    @property
    def command(self) -> str:
        """The command that measures the rows of a table again, without `--only` and `--write`."""
        scale, usual = self.scale, Scale()
        said = ["./kourou bench --peers"]
        said += [f"--among {','.join(self.peers)}"] if self.peers else []
        said += [f"--rounds {self.rounds}"] if self.rounds != PeerOptions().rounds else []
        for name in OPTIONS:
            if getattr(scale, name) != getattr(usual, name):
                said.append(f"--{name.replace('_', '-')} {getattr(scale, name):g}")
        return " ".join([*said, *["--huge"] * self.huge])


def names(text: str) -> list[str]:
    """The names in `a,b,c`."""
    return [name.strip() for name in text.split(",") if name.strip()]


def run_peers(options: PeerOptions) -> int:
    """Measure and print; returns 0 unless a measurement failed."""
    only = [*options.only, *(rows_lost(_results()) if options.rows_lost else ())]
    rows = select(only, huge=options.huge)
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
        peer = CLIENTS.get(work.client, name)
        if peer not in systems:
            whose = "" if peer is name else ", whose client is needed,"
            return f"{peer}{whose} was not selected"
        return missing[peer] or systems[name].cannot(work)

    def opened(name: Name, work: Work) -> AbstractContextManager[Measured]:
        peer = CLIENTS.get(work.client)
        system = systems[name] if peer is None else _java(peer)
        flames = None
        if options.flame_graphs is not None and name is Name.KOUROU:
            label = next(row.name for row in rows if row.works.get(name) == work)
            flames = Flames(options.flame_graphs, label)
        return prepared(system, work, options.scale, flames)

    results = Comparison(opened, absent, _tell).run(rows, options.rounds)
    titles = {name: name.value for name in Name}
    titles |= {name: one.title() for name, one in systems.items() if not missing[name]}
    if options.as_json:
        print("\n".join(json_lines(results, settings)), flush=True)
    else:
        print(f"\n{text_table(results, titles)}\n")
    for note in notes(results, titles):
        print(note, file=sys.stderr if options.as_json else sys.stdout, flush=True)
    if options.write:
        write_results(
            _results(),
            results,
            titles,
            machine=machine_name(),
            command=options.command,
            date=datetime.datetime.now(tz=datetime.UTC).date(),
        )
    return int(_failed(results))


def _results() -> Path:
    """The page with the recorded results."""
    return find_checkout() / "benchmarks" / "README.md"


def _java(peer: Name) -> System:
    checkout = find_checkout()
    return JavaAtKourou(checkout / "benchmarks" / "java", checkout / CACHE_FOLDER, peer)


def machine_name() -> str:
    """The cores, the processor, the kernel and the Python of this machine."""
    path = Path("/proc/cpuinfo")
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    model = re.search(r"^model name\s*: (.*)$", text, re.MULTILINE)
    cores = f"{os.cpu_count()} cores"
    processor = f"{cores} of {model[1].strip()}" if model else cores
    return f"{processor}, {platform.system()} {platform.release()}, {python_name()}"


def _systems(wanted: Sequence[str]) -> dict[Name, System]:
    try:
        checkout = find_checkout()
    except ConfigError as wrong:
        raise ConfigError(
            "the drivers of the peers are only in the source checkout",
            hint="clone the repository and run ./kourou bench --peers there",
        ) from wrong
    sources = checkout / "benchmarks"
    systems: list[System] = [
        Kourou(),
        RocketMq(sources / "java", checkout / CACHE_FOLDER),
        RocketMq(sources / "java", checkout / CACHE_FOLDER, Name.ROCKETMQ5),
        Kafka(sources / "java", sources / "peers", checkout / CACHE_FOLDER),
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
        **options.scale.record(),
        "kernel": kernel.NAME,
        "machine": machine_name(),
        "file_system": file_system_of(folder, text) or "unknown",
        "systems": {system.title(): dict(system.settings()) for system in systems},
    }


def _introduce(settings: dict[str, object]) -> None:
    systems = settings.pop("systems")
    assert isinstance(systems, dict)
    print("; ".join(f"{name} {value}" for name, value in settings.items()))
    if settings["file_system"] in MEMORY_FILE_SYSTEMS:
        print("THE TEMPORARY FOLDER IS IN MEMORY: no disk is measured; set TMPDIR to a disk")
    for title, keys in systems.items():
        print(f"{title}: " + "; ".join(f"{name} {value}" for name, value in keys.items()))
    settings["systems"] = systems
    sys.stdout.flush()


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _failed(results: Sequence[Result]) -> bool:
    return any(cell.failures for result in results for cell in result.cells.values())
