"""The demo's output: lines for a log, or a live display on a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from kourou_demo.picture import Picture
from kourou_demo.verdict import Numbers

LINES_EVERY = 10
"""A plain view prints one of so many snapshots."""

BAR_WIDTH_MAX = 44
BAR_WIDTH_MIN = 6
BESIDE_THE_BAR = 12 + 9 + 11 + 3
"""Width of a line without its bar: name, count and rate, with a space between each two."""


class View(Protocol):
    """The output that the demo writes to."""

    def chapter(self, title: str) -> None:
        """Start a new part."""
        ...

    def note(self, text: str) -> None:
        """Report an event."""
        ...

    def show(self, picture: Picture) -> None:
        """Show the current progress."""
        ...

    def table(self, title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Show a result as a table."""
        ...

    def verdict(self, numbers: Numbers, seconds: float) -> None:
        """Show the final result."""
        ...

    def close(self) -> None:
        """Restore the terminal."""
        ...


class PlainView:
    """Lines of text, for logs and dumb terminals."""

    def __init__(self) -> None:
        self._shown = 0

    def chapter(self, title: str) -> None:
        """Print a line."""
        print(f"== {title}", flush=True)

    def note(self, text: str) -> None:
        """Print a line."""
        print(f"   {text}", flush=True)

    def show(self, picture: Picture) -> None:
        """Print a line for some of the snapshots."""
        self._shown += 1
        if self._shown % LINES_EVERY:
            return
        members = "  ".join(
            f"{member.name} {'killed at ' if member.killed else ''}{member.delivered:,}"
            for member in picture.members
        )
        published = ""
        if picture.publish_rate is not None:
            published = f"published {picture.available:,} ({picture.publish_rate:,.0f}/s)  "
        tables = "".join(f"  {table.name} {table.rows:,}" for table in picture.tables)
        self.note(f"{published}{members}  lag {picture.lag:,}{tables}")

    def table(self, title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Print a block of aligned lines."""
        widths = [max(len(row[place]) for row in (columns, *rows)) for place in range(len(columns))]
        self.note(title)
        for row in (columns, *rows):
            cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
            self.note(("  " + "  ".join(cells)).rstrip())

    def verdict(self, numbers: Numbers, seconds: float) -> None:
        """Print the counts and the result."""
        for name, value in _figures(numbers):
            print(f"   {name:<18} {value:>9,}")
        troubles = numbers.disagreements()
        for trouble in troubles:
            print(f"!! {trouble}")
        print(f"== {'NOT OK' if troubles else 'ok'} after {seconds:.0f} s", flush=True)

    def close(self) -> None:
        """Nothing to do."""


class LiveView:
    """Live bars and rates, and tables that remain."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, refresh_per_second=10, transient=True)
        self._live.start()

    def chapter(self, title: str) -> None:
        """Print a heading that remains."""
        self._live.update(Text(""))
        self._console.print(f"\n[bold cyan]▸[/] [bold]{escape(title)}[/]")

    def note(self, text: str) -> None:
        """Print a line that remains."""
        self._console.print(f"  [dim]{escape(text)}[/]")

    def show(self, picture: Picture) -> None:
        """Update the live display."""
        room = self._console.width - BESIDE_THE_BAR
        width = min(BAR_WIDTH_MAX, room) if room >= BAR_WIDTH_MIN else 0
        grid = Table.grid(padding=(0, 1))
        grid.add_column(width=12, no_wrap=True)
        if width:
            grid.add_column(width=width)
        grid.add_column(justify="right", width=9, no_wrap=True)
        grid.add_column(justify="right", width=11, no_wrap=True)

        def row(name: str, done: int | None, count: str, rate: str) -> None:
            bar = "" if done is None else ProgressBar(goal, min(goal, done), width or None)
            grid.add_row(*([name, bar] if width else [name]), count, rate)

        goal = picture.goal
        if picture.publish_rate is not None:
            rate = f"{picture.publish_rate:,.0f}/s"
            row("published", picture.available, f"{picture.available:,}", rate)
        for member in picture.members:
            name = f"[red]✗[/] {member.name}" if member.killed else f"[green]●[/] {member.name}"
            rate = "[red]killed[/]" if member.killed else f"{member.rate:,.0f}/s"
            row(name, member.delivered, f"{member.delivered:,}", rate)
        for table in picture.tables:
            rate = f"{table.rate:,.0f}/s"
            row(f"[blue]●[/] {table.name}", table.rows, f"{table.rows:,}", rate)
        lag_style = "yellow" if picture.lag else "green"
        row("lag", None, f"[{lag_style}]{picture.lag:,}[/]", "")
        self._live.update(Group(Text(""), grid))

    def table(self, title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Print a table that remains."""
        table = Table(title=title, title_justify="left", header_style="bold")
        for column in columns:
            table.add_column(column)
        for row in rows:
            table.add_row(*row)
        self._console.print(table)

    def verdict(self, numbers: Numbers, seconds: float) -> None:
        """Print a table of the counts, and one line in green or red."""
        self.close()
        troubles = numbers.disagreements()
        table = Table(show_header=False, title="Results", title_justify="left")
        table.add_column()
        table.add_column(justify="right")
        for name, value in _figures(numbers):
            table.add_row(name, f"{value:,}")
        self._console.print("\n", table)
        for trouble in troubles:
            self._console.print(f"[red]✗ {escape(trouble)}[/]")
        word = "[bold red]NOT OK[/]" if troubles else "[bold green]✓ ok[/]"
        self._console.print(f"{word} after {seconds:.0f} s\n")

    def close(self) -> None:
        """Stop the live display."""
        self._live.stop()


def open_view(*, plain: bool) -> View:
    """The live view if the output is a terminal, else lines."""
    console = Console(highlight=False)
    return PlainView() if plain or not console.is_terminal else LiveView(console)


def _figures(numbers: Numbers) -> list[tuple[str, int]]:
    day, arrivals = numbers.worst_day, numbers.late_arrivals
    overnight = [] if arrivals.lacking else [("past midnight", arrivals.overnight)]
    spark, group = numbers.spark, numbers.group
    tables = [
        ("rows in Parquet", spark.rows),
        ("duplicate rows", spark.duplicates),
        ("totals by carrier", spark.totals_right),
    ]
    return [
        ("events", numbers.events),
        ("published", numbers.published),
        ("stored", numbers.stored),
        ("consumed, unique", numbers.consumed_unique),
        ("redelivered", numbers.redelivered),
        ("lost", numbers.lost),
        ("queried by key", numbers.queried),
        ("replayed by time", numbers.replayed),
        ("calls in order", day.calls),
        ("out of order", day.out_of_order),
        ("retried", day.retried),
        ("dead letters", day.dead_letters),
        ("DLQ redelivered", day.resent),
        ("delayed", day.reminders),
        ("early", day.early),
        ("tickets", day.tickets),
        ("unbooked tickets", day.unwanted_tickets),
        ("check-backs", day.asked),
        ("late", arrivals.late),
        *overnight,
        ("acked by group", group.acknowledged),
        ("lost by group", group.lost),
        ("twice in group", group.stored_twice),
        ("ms without leader", group.failover_ms),
        *([] if spark.left_out else tables),
    ]
