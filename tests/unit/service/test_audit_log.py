"""Refused requests in a file: whole lines first, then exact counts, bounded."""

from __future__ import annotations

import logging
from dataclasses import replace
from io import FileIO
from pathlib import Path

import msgspec
import pytest

from kourou.authorization.audit import AccessDecided, AuditQuestion
from kourou.protocol.bodies.access_bodies import AuditDecision, AuditLine, decode_audit
from kourou.service import audit_log
from kourou.service.audit_log import WHOLE_LINES, AuditLog, search

MINUTE_MS = 60_000


def refused(user: str = "eve", at_ms: int = 0, **fields: object) -> AccessDecided:
    usual = {
        "source": "10.0.0.1",
        "request": "SendMessage",
        "need": "Pub on Topic:a",
        "by": "no policy allows it",
        "handled": False,
    }
    return AccessDecided(user=user, wall_ms=at_ms, **(usual | fields))  # type: ignore[arg-type]


def lines(folder: Path) -> list[AuditLine]:
    return [
        msgspec.json.decode(line, type=AuditLine)
        for file in sorted(folder.glob("*.jsonl"))
        for line in file.read_bytes().splitlines()
    ]


def test_the_counts_of_a_flood_are_exact_and_its_lines_few(tmp_path: Path) -> None:
    log = AuditLog(tmp_path)
    for number in range(1_000):
        log.record(refused(at_ms=number))
    log.record(refused("other", at_ms=5))
    log.record(refused(at_ms=MINUTE_MS))
    log.close()
    found = lines(tmp_path)
    assert sum(one.count for one in found if one.user == "eve") == 1_001
    assert len([one for one in found if one.user == "eve"]) == WHOLE_LINES + 2
    assert [one.count for one in found if one.user == "other"] == [1]


def test_a_flood_of_refusals_hides_no_allowed_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Each decision has its own lines and kinds; only refusals are logged."""
    monkeypatch.setattr(audit_log, "AUDIT_LINES_MAX", 5)
    monkeypatch.setattr(audit_log, "ACCESS_REFUSALS_MAX", 7)
    log = AuditLog(tmp_path)
    for number in range(20):
        log.record(refused(f"user-{number}"))
    log.record(refused("root", allowed=True, handled=True))
    log.record(refused("root"))
    log.close()
    found = lines(tmp_path)
    assert sum(one.count for one in found) == 22
    [change] = [one for one in found if one.decision is AuditDecision.ALLOWED]
    assert (change.user, change.count, change.handled) == ("root", 1, True)
    assert "root" not in caplog.text
    raw = next(one for one in tmp_path.glob("*.jsonl")).read_bytes().splitlines()
    assert b"decision" not in raw[0], "lines of before are refusals"
    assert b'"decision":"allowed"' in raw[5]


def test_each_kind_is_logged_once_a_minute(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = AuditLog(tmp_path)
    with caplog.at_level(logging.WARNING):
        for at_ms in (0, 1, 2, MINUTE_MS):
            log.record(refused(at_ms=at_ms))
            log.record(refused("mallory", at_ms, handled=True))
    log.close()
    texts = [one.getMessage() for one in caplog.records]
    assert len(texts) == 4
    assert texts[0].startswith("access refused: user='eve' source=10.0.0.1 request=SendMessage")
    assert texts[1].startswith("access would be refused: user='mallory'")


def test_more_kinds_than_the_limit_are_counted_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kourou.service.audit_log.ACCESS_REFUSALS_MAX", 3)
    log = AuditLog(tmp_path)
    for number in range(10):
        log.record(refused(f"user-{number}"))
    log.close()
    found = lines(tmp_path)
    assert [one.user for one in found] == ["user-0", "user-1", "user-2", "others"]
    assert found[-1].count == 7


def test_files_are_bounded_in_size_and_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kourou.service.audit_log.AUDIT_FILE_BYTES_MAX", 300)
    monkeypatch.setattr("kourou.service.audit_log.AUDIT_FILES_MAX", 3)
    for start in range(2):  # a second start continues
        log = AuditLog(tmp_path)
        for number in range(20):
            log.record(refused(at_ms=(20 * start + number) * MINUTE_MS))
        log.close()
    files = sorted(tmp_path.glob("*.jsonl"))
    assert len(files) == 3
    assert all(one.stat().st_size < 600 for one in files)
    assert lines(tmp_path)[-1].at_ms == 39 * MINUTE_MS
    assert files[-1].stat().st_mode & 0o077 == 0


def test_control_characters_of_a_name_stay_in_their_line(tmp_path: Path) -> None:
    log = AuditLog(tmp_path)
    log.record(refused('eve\n{"user":"root"}'))
    log.close()
    (line,) = lines(tmp_path)
    assert line.user == 'eve\n{"user":"root"}'


def test_a_folder_that_cannot_be_written_refuses_all_the_same(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    log = AuditLog(blocked / "audit")
    log.record(refused())
    log.close()
    assert "the audit file cannot be written" in caplog.text


def test_a_line_names_the_console_that_sent_it(tmp_path: Path) -> None:
    log = AuditLog(tmp_path)
    log.record(refused())
    log.record(refused("till", console="console-1"))
    log.close()
    assert [(one.user, one.console) for one in lines(tmp_path)] == [
        ("eve", ""),
        ("till", "console-1"),
    ]


# -- searches -------------------------------------------------------------------------------------

ALL = AuditQuestion("", "", None, None, 1_000, None)


def found(folder: Path, **wanted: object) -> list[int]:
    """The times of the lines that a search finds, page after page."""
    question, times = replace(ALL, **wanted), []  # type: ignore[arg-type]
    while True:
        page = search(folder, question)
        lines = decode_audit(page.body)
        assert len(lines) <= question.limit
        times += [one.at_ms for one in lines]
        if page.before is None:
            return times
        question = replace(question, before=page.before)


@pytest.fixture
def searched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three files with 300 refusals: of eve, and every third of till, one each 10 s."""
    monkeypatch.setattr(audit_log, "AUDIT_FILE_BYTES_MAX", 15_000)
    log = AuditLog(tmp_path)
    for number in range(300):
        log.record(refused("eve" if number % 3 else "till", number * 10_000))
    log.close()
    assert len(list(tmp_path.glob("*.jsonl"))) == 3
    return tmp_path


@pytest.mark.parametrize("limit", [1, 7, 1_000])
@pytest.mark.parametrize("read_bytes", [400, 4_000, 1 << 20])
def test_a_search_finds_each_line_once_the_newest_first(
    searched: Path, monkeypatch: pytest.MonkeyPatch, limit: int, read_bytes: int
) -> None:
    monkeypatch.setattr(audit_log, "AUDIT_READ_BYTES_MAX", read_bytes)
    every = [number * 10_000 for number in reversed(range(300))]
    assert found(searched, limit=limit) == every
    of_till = [at_ms for at_ms in every if at_ms % 30_000 == 0]
    assert found(searched, limit=limit, user="till") == of_till
    span = {"since_ms": 1_000_000, "until_ms": 1_100_000}
    assert found(searched, limit=limit, **span) == every[190:200]
    assert found(searched, limit=limit, request="PullMessage") == []
    for decision, expected in ((AuditDecision.ALLOWED, []), (AuditDecision.REFUSED, of_till)):
        assert found(searched, limit=limit, user="till", decision=decision) == expected


def test_a_line_that_is_not_complete_is_left_out(tmp_path: Path) -> None:
    assert found(tmp_path / "missing") == []
    log = AuditLog(tmp_path)
    log.record(refused(at_ms=7))
    log.close()
    [file] = tmp_path.glob("*.jsonl")
    with file.open("ab") as opened:
        opened.write(b'not JSON\n{"at_ms": 8')
    assert found(tmp_path) == [7]
    assert found(tmp_path, before=(9, 1 << 40)) == [7], "the file of that place was deleted"


def test_what_could_not_be_written_is_counted_later(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "audit"
    folder.write_text("no folder")
    log = AuditLog(folder)
    for minute in range(2):
        for number in range(100):
            log.record(refused(at_ms=minute * MINUTE_MS + number))
            log.record(refused("mallory", at_ms=minute * MINUTE_MS + number))
    complaints = caplog.text.count("the audit file cannot be written")
    assert complaints == 2, "one a minute, not one a refusal"
    folder.unlink()
    log.record(refused(at_ms=2 * MINUTE_MS))
    log.close()
    found = lines(folder)
    assert sum(one.count for one in found if one.user == "eve") == 201
    assert sum(one.count for one in found if one.user == "mallory") == 200


def test_a_full_disk_leaves_no_half_of_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = AuditLog(tmp_path)
    log.record(refused())
    monkeypatch.setattr("kourou.service.audit_log.FileIO", type("Full", (FileIO,), {"write": half}))
    log.close()
    log.record(refused(at_ms=1))
    log.record(refused(at_ms=2))
    monkeypatch.setattr("kourou.service.audit_log.FileIO", FileIO)
    log.record(refused(at_ms=MINUTE_MS))
    log.close()
    assert [one.count for one in lines(tmp_path)] == [1, 2, 1]


def half(file: FileIO, data: bytes) -> int:
    """What a disk does that becomes full."""
    return FileIO.write(file, data[: len(data) // 2])
