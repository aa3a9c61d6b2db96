"""The table shows values and ratios; empty cells say why; each figure is a JSON line as well."""

from __future__ import annotations

import json

from kourou_bench.comparison import Cell, Result
from kourou_bench.rows import ROWS, Name
from kourou_bench.table import json_lines, notes, text_table

ROW = {row.name: row for row in ROWS}
TITLES = {name: name.value.capitalize() for name in Name}
SEND = Result(
    ROW["send-64"],
    {
        Name.KOUROU: Cell(
            [60_000.0, 62_000.0, 61_000.0], server_us=[9.0, 11.0, 10.0], client_us=[3.0, 4.0, 5.0]
        ),
        Name.ROCKETMQ: Cell([20_000.0, 31_000.0, 15_250.0]),
        Name.NATS: Cell([None] * 3, absent="nats-server is not installed: apt install"),
        Name.REDIS: Cell([None, 12_200.0, None], failures=["lost one", "lost one"]),
    },
)
MEMORY = Result(ROW["memory"], {Name.KOUROU: Cell([250.0])})


def test_a_row_has_medians_ratios_goal_and_verdict() -> None:
    head, _, send, cpu, memory = text_table([SEND, MEMORY], TITLES).splitlines()
    assert head.split() == ["work", "Kourou", "Rocketmq", "×", "Nats", "×", "Redis", "×", "goal"]
    assert send.split("flight")[1].split() == [
        "msg/s",
        *("61,000", "20,000", "3.00"),
        "—",
        *("12,200", "5.08"),
        *("≥", "3", "×", "yes"),
    ]
    assert cpu.split("message")[1].split() == ["µs", "10.0+4.0", "—", "—", "—"]
    assert memory.split("RSS")[1].split() == ["MB", "250", "—", "—", "—", "≤", "60", "MB", "NO"]


def test_empty_cells_and_failures_are_told_once_each() -> None:
    assert list(notes([SEND, SEND], TITLES)) == [
        "NOT MEASURED: nats-server is not installed: apt install (Nats)",
        "FAILED: lost one (Redis)",
    ]


def test_every_figure_is_a_line() -> None:
    lines = {line["name"]: line for line in map(json.loads, json_lines([SEND], {"rounds": 3}))}
    assert lines["send-64 kourou"] == {
        "name": "send-64 kourou",
        "unit": "msg/s",
        "value": 61_000,
        "rounds": [60_000, 62_000, 61_000],
        "settings": {
            "rounds": 3,
            "unsteady": "",
            "work": {
                "kind": "send",
                "flush": "async",
                "in_flight": 64,
                "batch": 1,
                "handler": "message",
                "queues": 4,
                "topics": 1,
            },
        },
    }
    assert lines["send-64 kourou server CPU"]["value"] == 10
    assert lines["send-64 kourou client CPU"]["rounds"] == [3, 4, 5]
    ratio = lines["send-64 kourou/rocketmq"]
    assert (ratio["unit"], ratio["value"], ratio["rounds"]) == ("×", 3, [3, 2, 4])
    assert lines["send-64 nats"]["value"] is None
    assert lines["send-64 nats"]["not_measured"].startswith("nats-server is not installed")
    assert lines["send-64 kourou/redis"]["rounds"] == [5.082]
