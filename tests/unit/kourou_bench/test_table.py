"""The table shows values, ratios, the goal and whether it is reached."""

from __future__ import annotations

from kourou_bench.comparison import Cell, Result
from kourou_bench.rows import ROWS, Name
from kourou_bench.table import text_table

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
