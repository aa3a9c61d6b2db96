"""docs/reference/states.md: state machines, and the conditions of their transitions."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from pathlib import Path

from generators.tables import code, document, head, link, paragraph, table

from kourou.client.consumer.puller import SWIFT_MS, PullAction, step_after
from kourou.client.settings.client_settings import ConsumerSettings
from kourou.engine.disk_pressure import DiskLevel, DiskPressure
from kourou.engine.policy import BrokerPolicy
from kourou.errors import Code
from kourou.protocol.table import PULL_ANSWERS
from kourou.service.lifecycle import STEPS, ExitCode, Phase

LIFE = "libs/kourou/service/lifecycle.py"
DISK = "libs/kourou/engine/disk_pressure.py"
PULL = "libs/kourou/client/consumer/puller.py"

ABOUT = """\
State machines: the lifecycle of a service, the disk usage of a broker, the pull loop of a consumer.
They are generated from tables in the code or by running it. For the outcome of a send see the
columns *exception* and *sent again?* of [errors.md](errors.md#numbers)."""


def page(_root: Path) -> str:
    """Servers first, then clients."""
    lines = head("States", ABOUT, LIFE, DISK, PULL)
    return document([*lines, *_life(), *_disk(), *_pulls()])


def remarks(kind: type[Enum]) -> Mapping[str, str]:
    """The comment after each member in the source, if any."""
    source = inspect.getsource(kind)
    return dict(re.findall(r"^    ([A-Z_]+) = [^#\n]+?  # (.+)$", source, re.MULTILINE))


def diagram(steps: Iterable[tuple[str, str, str]]) -> list[str]:
    """(from, to, when) as a Mermaid diagram; `[*]` is the start and the end."""
    lines = ["```mermaid", "stateDiagram-v2"]
    for before, after, when in steps:
        told = f": {re.sub('[:;]', ',', when)}" if when else ""
        lines.append(f"    {before} --> {after}{told}")
    return [*lines, "```", ""]


# -- lifecycle of a service -----------------------------------------------------------------------


def _life() -> Iterator[str]:
    yield from ("## Lifecycle of a service", "")
    yield "Name server and broker alike. A second signal ends the process at once, in any phase."
    yield ""
    said = remarks(Phase)
    yield from table(
        ("phase", "what happens"),
        [(phase.value, said[phase.name]) for phase in Phase],
    )
    ends = {Phase.END: "[*]"}
    yield from diagram(
        [
            ("[*]", Phase.LOAD.value, ""),
            *(
                (before.value, ends.get(after, after.value), when)
                for before, steps in STEPS.items()
                for after, when in steps.items()
            ),
        ]
    )
    yield from table(
        ("phase", "next", "when"),
        [
            (before.value, after.value, when)
            for before, steps in STEPS.items()
            for after, when in steps.items()
        ],
    )
    yield from ("Exit codes:", "")
    said = remarks(ExitCode)
    yield from table(
        ("exit code", "name", "means"),
        [(str(one.value), code(one.name), said.get(one.name, "regular end")) for one in ExitCode],
    )


# -- a broker's disk ------------------------------------------------------------------------------


def _disk() -> Iterator[str]:
    yield from ("## A broker's disk", "")
    yield paragraph(
        "Each check of the disk yields a level, independent of the last one. With the default "
        "settings:"
    )
    yield ""
    said = remarks(DiskLevel)
    yield from table(
        ("level", "name", "from", "effect"),
        [
            (str(level.value), level.name.lower(), f"{percent} % in use", said[level.name])
            for level, percent in _levels()
        ],
    )
    yield paragraph(
        "Refusing and starving end at a lower level than they start, so that a broker does not "
        "alternate between two states. Reads always continue. The thresholds are settings of the "
        f"{link('broker', 'Broker', 'settings.md')}."
    )
    yield ""
    steps = list(_hysteresis())
    yield from diagram([("[*]", "usual", ""), *((a, b, when) for a, b, when, _ in steps)])
    yield from table(
        ("from", "to", "when", "the log says"),
        [(before, after, when, told) for before, after, when, told in steps],
    )


def _pressure() -> DiskPressure:
    return DiskPressure(BrokerPolicy("DefaultCluster", "broker-a"))


def _look(disk: DiskPressure, used_percent: int) -> list[str]:
    """One measurement of a disk that is too large to be reported as small."""
    total = 100 << 40
    warnings = disk.measured(total, total * (100 - used_percent) // 100, full=False)
    return [warning.sentence for warning in warnings]


def _levels() -> Iterator[tuple[DiskLevel, int]]:
    disk = _pressure()
    seen: set[DiskLevel] = set()
    for percent in range(101):
        _look(disk, percent)
        if disk.level not in seen:
            seen.add(disk.level)
            yield disk.level, percent


def _hysteresis() -> Iterator[tuple[str, str, str, str]]:
    """(from, to, when, log messages) while a disk fills up and empties again."""
    disk = _pressure()
    for percent in (*range(101), *range(99, -1, -1)):
        before = _name(disk)
        used = disk.used_percent
        told = _look(disk, percent)
        if _name(disk) != before:
            when = f"{percent} % in use" if percent > used else f"below {used} %"
            yield before, _name(disk), when, "; ".join(told)


def _name(disk: DiskPressure) -> str:
    if disk.starving:
        return "starving"
    return "refusing" if disk.refusing else "usual"


# -- a consumer's pulls ---------------------------------------------------------------------------


def _pulls() -> Iterator[str]:
    settings = ConsumerSettings()
    yield from ("## After each reply to a pull", "")
    yield paragraph(
        "A push consumer pulls each of its queues in a loop. The table has its action and its "
        "pause before the next pull, with the default settings:"
    )
    yield ""
    said = remarks(PullAction)

    def pause_ms(number: int, *, progressed: bool, elapsed_ms: int) -> str:
        step = step_after(
            number,
            progressed=progressed,
            elapsed_ms=elapsed_ms,
            pull_interval_ms=settings.pull_interval_ms,
            exception_pause_ms=settings.pull_pause_ms_when_exception,
        )
        return str(step.pause_ms)

    def action(number: int) -> str:
        step = step_after(
            number, progressed=True, elapsed_ms=0, pull_interval_ms=0, exception_pause_ms=0
        )
        return said.get(step.action.name, "")

    yield from table(
        (
            "reply",
            "action",
            "pause (ms)",
            "… without a new offset",
            f"… and within {SWIFT_MS} ms",
        ),
        [
            (
                f"{number.value} {link(code(number.name), 'Numbers', 'errors.md')}",
                action(number),
                pause_ms(number, progressed=True, elapsed_ms=SWIFT_MS),
                pause_ms(number, progressed=False, elapsed_ms=SWIFT_MS),
                pause_ms(number, progressed=False, elapsed_ms=0),
            )
            for number in (Code.SUCCESS, *sorted(PULL_ANSWERS))
        ],
    )
    yield paragraph(
        "A pull without a reply is retried after "
        f"{settings.pull_pause_ms_when_exception} ms, with a heartbeat and a refreshed route. "
        "While too many messages of a queue wait for their handlers (`pull_threshold_for_queue` "
        "and the related settings), the queue is not pulled."
    )
