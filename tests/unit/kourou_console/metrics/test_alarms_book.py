"""An alarm keeps its beginning while it stands, and gets a new one when it returns."""

from kourou_console.metrics.alarms import AlarmBook, Raised

LAG = Raised("lag", "warning", "group", "g", "t", "m", "w")
DISK = Raised("disk", "warning", "broker", "b", "t", "m", "w")


def test_since_when() -> None:
    book = AlarmBook()
    assert [one.since_ms for one in book.note(10, [LAG])] == [10]
    assert [one.since_ms for one in book.note(20, [LAG, DISK])] == [10, 20]
    assert book.note(30, [DISK])[0].since_ms == 20
    assert [one.since_ms for one in book.note(40, [LAG, DISK])] == [40, 20]
