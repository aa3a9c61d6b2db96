"""Results are written into a page: rows of this run replace their own, and no others."""

from __future__ import annotations

import datetime
import re
from pathlib import Path

import pytest

from kourou.errors import ConfigError
from kourou_bench.comparison import Cell, Result
from kourou_bench.rows import ROWS, Name
from kourou_bench.written import rows_lost, write_results

ROW = {row.name: row for row in ROWS}
TITLES = {
    **{name: name.value.capitalize() for name in Name},
    Name.ROCKETMQ: "RocketMQ 4.9.7",
    Name.REDIS: "Redis 7.0.15",
}
EMPTY = """# A page

<!-- results: peers -->
<!-- /results -->

between

<!-- results: others -->
<!-- /results -->

the end
"""


def cell(*values: float, unsteady: str = "") -> Cell:
    cpu: list[float | None] = [2.5] * len(values)
    return Cell(list(values), server_us=cpu, client_us=cpu, unsteady=unsteady)


SEND = Result(
    ROW["send-64"],
    {
        Name.KOUROU: cell(30_000, 40_000, 33_000),
        Name.ROCKETMQ: cell(20_000, 20_000, 20_000, unsteady="not steady after 120 s"),
        Name.REDIS: cell(60_000, 60_000, 60_000),
        Name.NATS: Cell([None] * 3, absent="is missing"),
    },
)
LATE = Result(ROW["latency-p50"], {Name.KOUROU: cell(0.2), Name.ROCKETMQ: cell(0.1)})
RESTART = Result(ROW["restart"], {Name.KOUROU: Cell([2.5], server_us=[None], client_us=[None])})
LOST = Result(ROW["send-64"], {Name.KOUROU: Cell([None]), Name.ROCKETMQ: cell(9)})


def written(page: Path, *results: Result, day: int = 1, command: str = "it") -> list[str]:
    write_results(
        page,
        results,
        TITLES,
        machine="2 cores",
        command=command,
        date=datetime.date(2026, 1, day),
    )
    return page.read_text(encoding="utf-8").splitlines()


@pytest.fixture
def page(tmp_path: Path) -> Path:
    found = tmp_path / "README.md"
    found.write_text(EMPTY, encoding="utf-8")
    return found


def test_a_row_has_both_figures_the_ratio_its_spread_and_cpu(page: Path) -> None:
    lines = written(page, SEND, RESTART)
    at = lines.index("<!-- results: peers -->")
    assert lines[at + 1 : at + 6] == [
        "Measured 2026-01-01 on 2 cores; to repeat all rows: `it`",
        "",
        "| work | Kourou | RocketMQ 4.9.7 | ratio | spread | CPU µs a message, server + client:"
        " Kourou | RocketMQ 4.9.7 | measured |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
        "| `send-64` | 33,000 msg/s | 20,000 msg/s (not steady) | 1.65 | 1.50–2.00 | 2.5 + 2.5 |"
        " 2.5 + 2.5 | 2026-01-01 |",
    ]
    at = lines.index("<!-- results: others -->")
    assert lines[at + 5 : at + 8] == [
        "| `send-64` | Redis 7.0.15 | 33,000 msg/s | 60,000 msg/s | 0.55 | 0.50–0.67 | 2.5 + 2.5 |"
        " 2.5 + 2.5 | 2026-01-01 |",
        "| `restart` | – | 2.5 s | – | – | – | – | – | 2026-01-01 |",
        "<!-- /results -->",
    ]
    assert lines[0] == "# A page"
    assert "between" in lines
    assert lines[-1] == "the end"


def test_a_partial_run_keeps_the_other_rows(page: Path) -> None:
    written(page, SEND, LATE)
    again = Result(ROW["latency-p50"], {Name.KOUROU: cell(0.3), Name.ROCKETMQ: cell(0.1)})
    lines = written(page, again, LOST, day=2, command="later")
    rows = [line for line in lines if line.startswith("| `")]
    assert [row.split("`")[1] for row in rows] == ["send-64", "latency-p50", "send-64"]
    assert "1.65" in rows[0]
    assert rows[0].endswith("2026-01-01 |"), "what failed now keeps what it had"
    assert "| 3.00 |" in rows[1]
    assert rows[1].endswith("2026-01-02 |")
    assert "Measured 2026-01-01 to 2026-01-02 on 2 cores; to repeat all rows: `later`" in lines
    assert "Measured 2026-01-01 on 2 cores; to repeat all rows: `it`" in lines


def test_the_page_of_this_project_says_when_its_rows_were_measured(
    pytestconfig: pytest.Config,
) -> None:
    text = (pytestconfig.rootpath / "benchmarks" / "README.md").read_text(encoding="utf-8")
    for name in ("peers", "others"):
        block = text.partition(f"<!-- results: {name} -->")[2].partition("<!-- /results -->")[0]
        dates = sorted(set(re.findall(r"^\| `.* (\S+) \|$", block, re.MULTILINE)))
        span = dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"
        assert block.startswith(f"\nMeasured {span} on ")


def test_rows_that_the_peer_leads_are_found_in_the_page(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(EMPTY)
    with pytest.raises(ConfigError, match=r"page\.md has no row"):
        rows_lost(page)
    slow = Result(ROW["batch-32"], {Name.KOUROU: cell(1), Name.ROCKETMQ: cell(2)})
    quick = Result(ROW["send-1"], {Name.KOUROU: cell(1), Name.ROCKETMQ: cell(2)})
    written(page, SEND, LATE, slow, quick)
    assert rows_lost(page) == ["batch-32", "latency-p50"]
