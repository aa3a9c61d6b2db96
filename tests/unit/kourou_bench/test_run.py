"""A figure is printed under what was measured."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from kourou_bench import run
from kourou_bench.figures import Figure
from kourou_bench.run import BenchSettings, heading, run_bench


@pytest.mark.parametrize(
    ("kind", "settings", "line"),
    [
        (
            "send",
            BenchSettings(None, 200_000, 1_024, "sync", in_flight=64, batch=8),
            "send: 200,000 messages of 1,024 bytes; 64 sends of 8 messages in flight; "
            "a temporary broker, sync flush",
        ),
        (
            "send",
            BenchSettings("h:1", 10, 5, "async", in_flight=64),
            "send: 10 messages of 5 bytes; 64 sends in flight; the brokers of h:1 with their "
            "flush setting",
        ),
        (
            "consume",
            BenchSettings(None, 10, 5, "async", handler="batch"),
            "consume: 10 messages of 5 bytes; handler by batch; a temporary broker, async flush",
        ),
        (
            "latency",
            BenchSettings(None, 10, 5, "async"),
            "latency: 10 messages of 5 bytes; a temporary broker, async flush",
        ),
    ],
)
def test_the_heading_names_the_circumstances(kind: str, settings: BenchSettings, line: str) -> None:
    assert heading(kind, settings) == line


def test_people_get_a_heading_and_machines_do_not(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = BenchSettings("h:1", 10, 5, "async")

    @contextmanager
    def cluster(settings: BenchSettings) -> Iterator[str]:
        yield "h:1"

    async def measure(kind: str, address: str, settings: BenchSettings) -> list[Figure]:
        return [Figure("send rate", "msg/s", 1.0)]

    monkeypatch.setattr(run, "_cluster", cluster)
    monkeypatch.setattr(run, "_measure", measure)
    assert run_bench("latency", settings, as_json=False) == 0
    assert capsys.readouterr().out.splitlines()[0] == heading("latency", settings)
    assert run_bench("latency", settings, as_json=True) == 0
    assert json.loads(capsys.readouterr().out)["value"] == 1.0
