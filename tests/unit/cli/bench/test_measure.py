"""A measurement starts servers, runs a driver, believes only counts that match, leaves nothing."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kourou.cli.bench.driving import DriverOptions, Outcome, outcome_line
from kourou.cli.bench.measure import Scale, measure
from kourou.cli.bench.rows import Name, Work
from kourou.cli.bench.systems import Processes, Running
from kourou.errors import Unavailable


class Puppet:
    """A system without servers, whose driver prints what it is told to."""

    name = Name.REDIS

    def __init__(self, output: str, code: int = 0) -> None:
        self.output = output
        self.code = code
        self.options: DriverOptions | None = None
        self.folders: list[Path] = []

    def missing(self) -> str:
        return ""

    def cannot(self, work: Work) -> str:
        return ""

    def title(self) -> str:
        return "Puppet"

    def settings(self) -> dict[str, object]:
        return {}

    def address(self, port: int) -> str:
        return f"127.0.0.1:{port}"

    def driver(self, options: DriverOptions) -> list[str]:
        self.options = options
        script = f"import sys; print({self.output!r}); sys.exit({self.code})"
        return [sys.executable, "-c", script]

    @contextmanager
    def serve(self, folder: Path, port: int, flush: str) -> Iterator[Running]:
        self.folders.append(folder.parent)
        yield Processes([])


def line(sent: int, stored: int) -> str:
    return outcome_line(Outcome(work="send", values={"rate": 2.0}, sent=sent, stored=stored))


def test_the_driver_is_given_work_and_scale_and_its_folder_is_gone_afterwards() -> None:
    puppet = Puppet(line(3, 3))
    scale = Scale(seconds=0.5, backlog=77)
    assert measure(puppet, Work("send", in_flight=9), scale).values == {"rate": 2.0}
    assert puppet.options is not None
    assert (puppet.options.in_flight, puppet.options.seconds) == (9, 0.5)
    assert puppet.options.messages == 0
    assert not puppet.folders[0].exists()
    assert scale.options(Work("consume", messages=1_000_000), "").messages == 77
    few = scale.options(Work("delayed", messages=100_000, delay_level=3, pace=9), "")
    assert (few.messages, few.delay_level, few.pace) == (8, 3, 9)


def test_lost_messages_make_the_figures_void() -> None:
    with pytest.raises(Unavailable, match="2 messages are stored, 3 were sent"):
        measure(Puppet(line(3, 2)), Work("send"), Scale())


def test_a_driver_that_fails_is_quoted() -> None:
    with pytest.raises(Unavailable, match="driver-send ended with 3: out of luck"):
        measure(Puppet("out of luck", code=3), Work("send"), Scale())
